"""Autocast state: torch's functions that mean CUDA when no device type is given."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import torch

from .device import BACKEND

Original = Callable[..., Any]


def is_autocast_enabled(original: Original, *args: Any, **kwargs: Any) -> bool:
    """``torch.is_autocast_enabled()``"""
    return original(*args, **kwargs) if args or kwargs else original(BACKEND)  # type: ignore[no-any-return]


def native_is_autocast_enabled(replaced: Any, peer: None) -> Any:
    """torch's own function where torch_musa put another: redirected it means MUSA too; Dynamo and pickle know it."""
    return torch._C.is_autocast_enabled


def native_set_autocast_enabled(replaced: Any, peer: None) -> Any:
    """The same for ``set_autocast_enabled``."""
    return torch._C.set_autocast_enabled


def set_autocast_enabled(original: Original, *args: Any, **kwargs: Any) -> None:
    """``torch.set_autocast_enabled(enabled)``"""
    if len(args) + len(kwargs) == 1 and "device_type" not in kwargs and not isinstance(args and args[0], str):
        original(BACKEND, *args, **kwargs)
    else:
        original(*args, **kwargs)


def get_autocast_gpu_dtype(original: Original) -> torch.dtype:
    """``torch.get_autocast_gpu_dtype()``"""
    _deprecated("get_autocast_gpu_dtype()", "get_autocast_dtype('cuda')")
    return torch.get_autocast_dtype(BACKEND)


def set_autocast_gpu_dtype(original: Original, dtype: torch.dtype) -> None:
    """``torch.set_autocast_gpu_dtype(dtype)``"""
    _deprecated("set_autocast_gpu_dtype(dtype)", "set_autocast_dtype('cuda', dtype)")
    torch.set_autocast_dtype(BACKEND, dtype)


def _deprecated(old: str, new: str) -> None:
    """torch's warning, with the caller's file and line; torch's own function would name these here."""
    warnings.warn(f"torch.{old} is deprecated. Please use torch.{new} instead.", DeprecationWarning, stacklevel=3)
