"""Storages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from .device import BACKEND


def is_cuda(original: Callable[..., Any], storage: Any) -> bool:
    """``is_cuda`` of a storage: True for MUSA memory, as for a tensor."""
    return bool(original(storage)) or storage.device.type == BACKEND
