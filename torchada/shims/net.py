"""The safety net: what reaches the CUDA dispatch key from C++ or TorchScript goes to the MUSA device.

Python calls never come here: their device argument is translated before torch sees it. What torch refuses before any
operator runs stays refused, in torch's words: moving a tensor to "cuda" without an index by ``torch.ops``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .device import translate


def _translated(value: Any) -> Any:
    return type(value)(map(translate, value)) if type(value) in (list, tuple) else translate(value)


def _redispatch(op: Any, *args: Any, **kwargs: Any) -> Any:
    new_args = tuple(map(_translated, args))
    new_kwargs = {name: _translated(value) for name, value in kwargs.items()}
    if all(map(_same, new_args, args)) and all(map(_same, new_kwargs.values(), kwargs.values())):
        raise NotImplementedError(
            f"{op} was called for CUDA, and no device argument says so: there is no CUDA device here, and torchada "
            "cannot tell what to run on the MUSA device instead. Pass a device, or MUSA tensors."
        )
    return op(*new_args, **new_kwargs)


def _same(new: Any, old: Any) -> bool:
    return new is old or (type(new) in (list, tuple) and all(a is b for a, b in zip(new, old, strict=True)))


def install() -> Callable[[], None]:
    """Register the fallback; undoing it removes it again."""
    library = torch.library.Library("_", "IMPL")
    library.m.fallback("CUDA", _redispatch, False)  # Library.fallback means the MUSA device by this key
    return library._destroy
