"""Operators that are overridden in C++, where the backend's own kernels cannot be captured in a graph.

The library is built and loaded when the first graph of the process is about to be captured: that is where the
operators are needed, however they are called, and nobody else waits for a compiler. From then on they answer every
call, so that a seed gives the same numbers inside a graph and outside.
"""

from __future__ import annotations

import ctypes
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_musa
from torch_musa.musa_graph.graphs import MUSAGraph

from ..errors import TorchadaError, TorchadaWarning
from ..platform import env_flag
from ..redirect import redirect_python
from .device import BACKEND

Undo = Callable[[], None]

_turn = threading.RLock()
_wanted: set[str] = set()  # by rules that are on
_tried: set[str] = set()  # of these: what has been loaded, or cannot be
_installed: set[str] = set()
_unhook: list[Undo] = []
_library: list[Any] = []
# The library keeps the address of this.
_capturing = ctypes.CFUNCTYPE(ctypes.c_int)(lambda: int(torch_musa._MUSAC._musa_isCurrentStreamCapturing()))


# ---------------------------------------------------------------- what the rules call
def multinomial() -> Undo:
    return _want("multinomial")


def log() -> Undo:
    return _want("log")


def log_in_place() -> Undo:
    return _want("log_")


def _want(name: str) -> Undo:
    with _turn:
        _wanted.add(name)
        if not _unhook:
            _unhook.append(redirect_python(MUSAGraph.capture_begin, _before_capture))

    def undo() -> None:
        with _turn:
            _wanted.discard(name)
            _tried.discard(name)
            _remove(name)
            if not _wanted:
                while _unhook:
                    _unhook.pop()()

    return undo


def _before_capture(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    if _wanted - _tried:
        prepare()
    return original(*args, **kwargs)


# ---------------------------------------------------------------- the library
def prepare() -> frozenset[str]:
    """Build and load the library for the operators that rules want, and return those that it answers now.

    One that cannot be answered stays the backend's own, which is told once; ``TORCHADA_STRICT=1`` raises instead.
    """
    with _turn:
        missing = sorted(_wanted - _tried)
        if missing:
            try:
                if not _library:
                    _library.append(_load())
                for name in missing:
                    _call("torchada_ops_install", name)
                    _installed.add(name)
                _check(missing)
            except (TorchadaError, ValueError, OSError) as error:
                for name in missing:
                    _remove(name)
                if env_flag("TORCHADA_STRICT"):
                    raise
                _tried.update(missing)
                _tell(missing, error)
            _tried.update(missing)  # not after Ctrl-C
        return frozenset(_installed)


def forbid(storage: int, message: str) -> None:
    """Let every question for the memory of the ``c10::StorageImpl`` at address *storage* raise *message*.

    Raises:
        TorchadaError: the library can neither be found nor built; the text says why.
    """
    with _turn:
        if not _library:
            _library.append(_load())
    error = _library[0].torchada_ops_forbid(storage, message.encode())
    if error:
        raise TorchadaError(error.decode())


def calls(name: str) -> int:
    """How often the override of ``aten::name`` has answered in this process."""
    return int(_library[0].torchada_ops_calls(name.encode())) if _library else 0


def _load() -> Any:
    from ..ops import build  # not at every start

    debug = env_flag("TORCHADA_DEBUG_CPP_OPS")
    with build.ensure() as path:
        try:
            library = ctypes.CDLL(str(path))
        except OSError as error:
            raise build.OpsBuildError(f"{error}; remove {path.parent} and it is built anew") from error
    for name in ("torchada_ops_install", "torchada_ops_remove"):
        function = getattr(library, name)
        function.argtypes, function.restype = [ctypes.c_char_p], ctypes.c_char_p
    library.torchada_ops_forbid.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    library.torchada_ops_forbid.restype = ctypes.c_char_p
    library.torchada_ops_calls.argtypes = [ctypes.c_char_p]
    library.torchada_ops_calls.restype = ctypes.c_longlong
    library.torchada_ops_setup(_capturing, int(debug))
    if debug:
        sys.stderr.write(f"torchada: operator overrides loaded from {path}\n")
    return library


def _call(function: str, name: str) -> None:
    error = getattr(_library[0], function)(name.encode())
    if error:
        raise TorchadaError(error.decode())


def _remove(name: str) -> None:
    if name in _installed:
        _installed.discard(name)
        _call("torchada_ops_remove", name)


def _tell(names: list[str], error: Exception) -> None:
    warnings.warn(
        f"{', '.join(f'torch.{name}' for name in names)} cannot be captured in a graph with torch_musa "
        f"{torch_musa.__version__}, and torchada has no overrides that can: {error} Until then these "
        "operators are torch_musa's own, which work outside of captures. TORCHADA_DISABLE_OP_OVERRIDE_<NAME>=1 "
        f"({', '.join(name.upper() for name in names)}) leaves them so without this message.",
        TorchadaWarning,
        stacklevel=5,
    )


# ---------------------------------------------------------------- is it right here?
def _check(names: list[str]) -> None:
    """Try what was installed. An override that the backend cannot carry out, or wrongly, is worse than none."""
    answer: list[Exception] = []
    device = torch.device(BACKEND, torch_musa.current_device())

    def attempt() -> None:
        try:
            for name in names:
                _TRIALS[name](device)
        except Exception as error:
            answer.append(error)

    # Modes, autocast, streams and gradients are a thread's own: a new one has none of them.
    thread = threading.Thread(target=attempt, name="torchada-probe", daemon=True)
    thread.start()
    thread.join()
    if answer:
        error = answer[0]
        raise TorchadaError(f"on {device} they do not work ({type(error).__name__}: {error})") from error


def _try_log(device: torch.device) -> None:
    _same(torch.tensor(_VALUES, device=device).log(), torch.tensor(_VALUES).log())


def _try_log_in_place(device: torch.device) -> None:
    _same(torch.tensor(_VALUES, device=device).log_(), torch.tensor(_VALUES).log())


def _try_multinomial(device: torch.device) -> None:
    weights = torch.tensor([[0.0, 0.0, 1.0], [2.0, 0.0, 0.0]], device=device)
    own = torch.Generator(device)  # the program's stays where it is
    own.manual_seed(0)
    for replacement, count in ((False, 1), (True, 4)):
        found = torch.multinomial(weights, count, replacement, generator=own)
        _same(found, torch.tensor([[2], [0]]).expand(2, count))


def _same(found: torch.Tensor, expected: torch.Tensor) -> None:
    if not torch.allclose(found.cpu(), expected, rtol=1e-6):
        raise ArithmeticError(f"{found.tolist()} instead of {expected.tolist()}")


_VALUES = (0.25, 1.0, 3.0, 1e-30)
_TRIALS = {"multinomial": _try_multinomial, "log": _try_log, "log_": _try_log_in_place}
