"""The runtime object of ``torch.cuda.cudart()``: CUDA's function names on torch_musa's runtime binding."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch_musa

from ..errors import NotOnMusa
from .cuda_device import runtime_library

_PROFILER = ("cudaProfilerStart", "cudaProfilerStop")


class Runtime:
    """``cudaMemGetInfo`` is ``musaMemGetInfo`` and so on; a function torch_musa does not bind raises NotOnMusa."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__") or not name.startswith("cuda"):
            raise AttributeError(f"the CUDA runtime object has no attribute {name!r}", name=name, obj=self)
        binding = torch_musa.core._lazy_init._musart
        found = getattr(binding, "musa" + name.removeprefix("cuda"), None)
        if found is None and name in _PROFILER:
            found = _profiler_call(name)
        if found is None:
            raise NotOnMusa(f"torch.cuda.cudart().{name}", "torch_musa does not bind this function of the runtime.")
        return found

    def __dir__(self) -> list[str]:
        names = dir(torch_musa.core._lazy_init._musart)
        return sorted("cuda" + name.removeprefix("musa") for name in names if name.startswith("musa"))

    def __repr__(self) -> str:
        return "<CUDA runtime names on the MUSA runtime>"


def _profiler_call(name: str) -> Callable[[], Any] | None:
    """The profiler switch of the MUSA runtime library itself, where that can be loaded."""
    symbol = getattr(runtime_library(), "musa" + name.removeprefix("cuda"), None)
    if symbol is None:
        return None
    errors = torch_musa.core._lazy_init._musart.musaError
    return lambda: errors(symbol())


RUNTIME = Runtime()


def cudart(native: Callable[..., Any], peer: None) -> Callable[..., Any]:
    @functools.wraps(native)
    def cudart() -> Runtime:
        torch_musa._lazy_init()
        return RUNTIME

    return cudart
