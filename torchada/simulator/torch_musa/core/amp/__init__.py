"""Automatic mixed precision."""

from .autocast_mode import autocast, custom_bwd, custom_fwd
from .common import _hook_autocast_common
from .grad_scaler import GradScaler

__all__ = ["GradScaler", "autocast", "custom_bwd", "custom_fwd"]

_hook_autocast_common()
