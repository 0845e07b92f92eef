"""Initialisation on first use, and what has to wait for it."""

import threading
import traceback
from collections.abc import Callable
from typing import Any

import torch
import torch_musa
from torch._utils import classproperty

from ._utils import _get_musa_device_index  # noqa: F401
from .musa import (
    BFloat16Storage,
    BoolStorage,
    ByteStorage,
    CharStorage,
    DoubleStorage,
    FloatStorage,
    HalfStorage,
    IntStorage,
    LongStorage,
    ShortStorage,
)

__all__ = [
    "BFloat16Storage",
    "BoolStorage",
    "ByteStorage",
    "CharStorage",
    "DeferredMusaCallError",
    "DoubleStorage",
    "FloatStorage",
    "HalfStorage",
    "IntStorage",
    "LongStorage",
    "MusaError",
    "ShortStorage",
    "check_error",
    "classproperty",
    "default_generators",
    "init",
    "is_initialized",
    "musart",
]

_Queued = tuple[Callable[[], Any], list[str]]

_initialized = False
_initialization_lock = threading.Lock()
_tls = threading.local()
_queued_calls: list[_Queued] = []
_is_in_bad_fork = torch_musa._MUSAC._musa_isInBadFork
_musart = torch_musa._MUSAC._musart
default_generators: tuple[torch._C.Generator, ...] = ()


class DeferredMusaCallError(Exception):
    """A call that was queued before initialisation failed when it ran."""


class MusaError(RuntimeError):
    """A call of the MUSA runtime failed. `code` is its error number."""

    def __init__(self, code: int) -> None:
        super().__init__(f"{_musart.musaGetErrorString(code)} ({int(code)})")


class _LazySeedTracker:
    """Keeps the newest seed request of each kind, in the order in which they have to run."""

    def __init__(self) -> None:
        self.manual_seed_cb: Any = ()
        self.manual_seed_all_cb: Any = ()
        self.call_order: list[Any] = []

    def queue_seed_all(self, cb: Any, traceback: Any) -> None:
        self.manual_seed_all_cb = (cb, traceback)
        self.call_order = [self.manual_seed_cb, self.manual_seed_all_cb]  # the newest runs last

    def queue_seed(self, cb: Any, traceback: Any) -> None:
        self.manual_seed_cb = (cb, traceback)
        self.call_order = [self.manual_seed_all_cb, self.manual_seed_cb]

    def get_calls(self) -> list[Any]:
        return self.call_order


_lazy_seed_tracker = _LazySeedTracker()


def is_initialized() -> bool:
    """True when the backend is initialised and this process is not a child forked after that."""
    return _initialized and not _is_in_bad_fork()


def _lazy_call(callable: Callable[[], Any], **kwargs: Any) -> None:
    """Run `callable` now, or when the backend initialises. `seed` and `seed_all` replace earlier ones."""
    if is_initialized():
        callable()
        return
    # Only the stack is kept here; a failure then shows who queued the call.
    if kwargs.get("seed_all", False):
        _lazy_seed_tracker.queue_seed_all(callable, traceback.format_stack())
    elif kwargs.get("seed", False):
        _lazy_seed_tracker.queue_seed(callable, traceback.format_stack())
    else:
        _queued_calls.append((callable, traceback.format_stack()))


def _lazy_init() -> None:
    global _initialized
    if (_initialized and not _is_in_bad_fork()) or hasattr(_tls, "is_initializing"):
        return
    with _initialization_lock:
        if is_initialized():
            return
        if _is_in_bad_fork():
            raise RuntimeError(
                "Cannot re-initialize MUSA in forked subprocess. To use MUSA with "
                "multiprocessing, you must use the 'spawn' start method"
            )
        # Set before the native call too: it may come back here while it makes generators.
        _tls.is_initializing = True
        try:
            if torch_musa._MUSAC._musa_getDeviceCount() == 0:
                raise RuntimeError("No MUSA GPUs are available")
            torch_musa._MUSAC._musa_init()
            _queued_calls.extend(call for call in _lazy_seed_tracker.get_calls() if call)
            for queued, where in _queued_calls:
                try:
                    queued()
                except Exception as error:
                    raise DeferredMusaCallError(
                        f"MUSA call failed lazily at initialization with error: {error}\n\n"
                        f"MUSA call was originally invoked at:\n\n{''.join(where)}"
                    ) from error
        finally:
            del _tls.is_initializing
        _initialized = True


def init() -> None:
    """Initialise now; nothing when it is done already. RuntimeError without a device."""
    _lazy_init()


def musart() -> Any:
    """The bound part of the MUSA runtime."""
    _lazy_init()
    return _musart


def check_error(res: int) -> None:
    """Raise MusaError unless `res` says success."""
    if res != _musart.musaError.success:
        raise MusaError(res)


def _lazy_new_function(cls: type, *args: Any, **kwargs: Any) -> Any:
    _lazy_init()
    return super(_MusaBase, cls).__new__(cls, *args, **kwargs)


_lazy_new = staticmethod(_lazy_new_function)


class _MusaBase:
    """Base of native types that initialise when the first object is made."""

    is_cuda = True
    is_sparse = False
    __new__ = _lazy_new

    def type(self, *args: Any, **kwargs: Any) -> Any:
        with torch_musa.device(self.get_device()):  # type: ignore[attr-defined]
            return super().type(*args, **kwargs)  # type: ignore[misc]
