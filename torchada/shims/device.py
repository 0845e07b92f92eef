"""Device values: what counts as a CUDA device, what it becomes, and the few places that ask about one."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from typing import Any

import torch

from .. import _detour
from ..redirect import redirect_python

BACKEND = "musa"
MAX_INDEX = 128  # torch keeps a device index in a signed byte
SPELLINGS = {"cuda": BACKEND} | {f"cuda:{index}": f"{BACKEND}:{index}" for index in range(MAX_INDEX)}

translate = _detour.translate


def configure() -> Callable[[], None]:
    """Teach the detours the spellings of CUDA devices and the device objects made before activation."""
    devices = {torch.device(cuda): torch.device(musa) for cuda, musa in SPELLINGS.items()}
    _detour.configure(SPELLINGS, torch.device, devices, torch.Tensor, torch._C._is_torch_function_mode_enabled)
    return lambda: None


def spellings() -> dict[str, Any]:
    """Ready devices for the usual strings."""
    usual = ("cpu", "meta", BACKEND, *(f"{BACKEND}:{index}" for index in range(8)))
    return {name: torch.device(name) for name in usual} | {cuda: torch.device(musa) for cuda, musa in SPELLINGS.items()}


def as_cuda(text: str) -> str:
    """A message of torch about the backend in the words of a CUDA program."""
    return text.replace(BACKEND.upper(), "CUDA").replace(f"torch.{BACKEND}", "torch.cuda").replace(BACKEND, "cuda")


def reduce_device(original: Callable[..., Any], device: torch.device) -> Any:
    """``device.__reduce__``: written as the CUDA device, so that a pickle made here loads on a CUDA machine too.

    Read back here it is the MUSA device again.
    """
    constructor, args, *rest = original(device)
    if args and args[0] == BACKEND:
        args = ("cuda", *args[1:])
    return (constructor, args, *rest)


def _get_device_module(original: Callable[..., Any], device: Any = None) -> Any:
    if isinstance(device, str) and translate(device) is not device:
        return torch.cuda
    return original(translate(device))


def get_device_module() -> Callable[[], None]:
    """``torch.get_device_module``: asked for "cuda" by name it is torch.cuda, as on CUDA; else torch's own answer."""
    asked: Any = torch.get_device_module
    restore = redirect_python(getattr(asked, "__wrapped__", asked), _get_device_module)
    forget = getattr(asked, "cache_clear", lambda: None)  # an older torch keeps no answers
    forget()

    def undo() -> None:
        restore()
        forget()

    return undo


def checkpoint_device_module(original: Callable[..., Any], device: str = "cuda") -> Any:
    """The module ``torch.utils.checkpoint`` asks for random states: torch.cuda, which knows when it is initialised."""
    return torch.cuda if translate(device) == BACKEND else original(device)


def fork_rng(
    original: Callable[..., Any],
    /,
    devices: Any = None,
    enabled: bool = True,
    _caller: str = "fork_rng",
    _devices_kw: str = "devices",
    device_type: str | None = None,
) -> Any:
    """``torch.random.fork_rng`` by way of torch.cuda: there torch intercepts what would set a state while it traces.

    Up to torch 2.12 it asks the module of ``torch.device(device_type)``, which is the backend's whatever it is given,
    so the states of named devices are kept here.
    """
    if device_type is not None and translate(device_type) != BACKEND:
        return original(devices, enabled, _caller, _devices_kw, device_type)
    if devices is None or not enabled:
        return original(devices, enabled, _caller, _devices_kw, "cuda")
    return _fork_cuda(original, list(devices))


@contextlib.contextmanager
def _fork_cuda(original: Callable[..., Any], devices: list[Any]) -> Iterator[None]:
    with original([]):
        states = [torch.cuda.get_rng_state(device) for device in devices]
        try:
            yield
        finally:
            for device, state in zip(devices, states, strict=True):
                torch.cuda.set_rng_state(state, device)


def out_of_memory() -> Callable[[], None]:
    """``torch.OutOfMemoryError``: CUDA's first words, which programs compare, and the backend's after them."""
    kind, own = torch.OutOfMemoryError, f"{BACKEND.upper()} out of memory."

    def initialise(self: BaseException, *args: Any) -> None:
        if args and isinstance(args[0], str) and args[0].startswith(own):
            args = (f"CUDA out of memory.{args[0].removeprefix(own)} ({own})", *args[1:])
        RuntimeError.__init__(self, *args)

    initialise.__name__, initialise.__qualname__ = "__init__", f"{kind.__name__}.__init__"
    kind.__init__ = initialise  # type: ignore[method-assign]  # the class inherits the one it has

    def undo() -> None:
        if vars(kind).get("__init__") is initialise:
            del kind.__init__

    return undo
