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


KEYS = {
    f"{kind}CUDA": f"{kind}PrivateUse1"
    for kind in ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
}
TORCHS = ("_", "aten", "prim", "prims")  # torch registers CUDA kernels here itself; they are not for MUSA


def _key(namespace: str, key: str) -> str:
    return key if namespace in TORCHS else KEYS.get(key, key)


def dispatch_library(original: Callable[..., Any], kind: str, ns: str, dispatch_key: str = "", *more: Any) -> Any:
    """``torch.library.Library(ns, kind, "CUDA")``"""
    return original(kind, ns, _key(ns, dispatch_key), *more)


def library_impl(
    original: Callable[..., Any], self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any
) -> Any:
    """``Library.impl(name, fn, "CUDA")``, and ``torch.library.impl``, which comes here."""
    if not str(getattr(fn, "__module__", "")).startswith("torch."):  # torch's own are registered for every device
        dispatch_key = _key(self.ns, dispatch_key or self.dispatch_key)
    return original(self, op_name, fn, dispatch_key, **options)


def install() -> Callable[[], None]:
    """Register the fallback; undoing it removes it again."""
    library = torch.library.Library("_", "IMPL")
    library.fallback(_redispatch, "CUDA")
    return library._destroy
