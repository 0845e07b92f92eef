"""torch.accelerator's memory functions, by torch_musa's own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch_musa
from torch.accelerator import _utils  # type: ignore[attr-defined, unused-ignore]


def _index(device: Any) -> int:
    return _utils._get_device_index(device, optional=True)  # type: ignore[no-any-return]


def empty_cache(original: Callable[..., None]) -> None:
    torch_musa.empty_cache()


def memory_stats(original: Callable[..., Any], device_index: Any = None, /) -> OrderedDict[str, Any]:
    return torch_musa.memory_stats(_index(device_index))  # type: ignore[no-any-return]


def reset_accumulated_memory_stats(original: Callable[..., None], device_index: Any = None, /) -> None:
    torch_musa.reset_accumulated_memory_stats(_index(device_index))


def reset_peak_memory_stats(original: Callable[..., None], device_index: Any = None, /) -> None:
    torch_musa.reset_peak_memory_stats(_index(device_index))


def get_memory_info(original: Callable[..., Any], device_index: Any = None, /) -> tuple[int, int]:
    return torch_musa.mem_get_info(_index(device_index))  # type: ignore[no-any-return]
