"""FlexAttention, and the compiler's processes that try its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

VISIBLE_DEVICES = "MUSA_VISIBLE_DEVICES"


def validate_device(original: Callable[..., None], query: Any, key: Any, value: Any) -> None:
    """On the MUSA device everything passes that passes on CUDA: both directions."""
    if query.device.type != "musa":
        original(query, key, value)
