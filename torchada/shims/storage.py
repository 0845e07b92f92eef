"""Storages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .device import BACKEND


def is_cuda(original: Callable[..., Any], storage: Any) -> bool:
    """``is_cuda`` of a storage: True for MUSA memory, as for a tensor."""
    return bool(original(storage)) or storage.device.type == BACKEND


def typed_type(original: Callable[..., Any], self: Any, dtype: Any = None, non_blocking: bool = False) -> Any:
    """``TypedStorage.type()``: "torch.cuda.FloatStorage", as ``Tensor.type()`` says "torch.cuda.FloatTensor"."""
    answer = original(self, dtype, non_blocking)
    if isinstance(answer, str) and self.device.type == BACKEND:
        return f"torch.cuda.{answer.rpartition('.')[2]}"
    return answer
