"""GradScaler with the device filled in."""

import warnings

import torch

from .common import _musa_device, amp_definitely_not_available

__all__ = ["GradScaler"]


class GradScaler(torch.amp.grad_scaler.GradScaler):
    """torch.amp.GradScaler("musa", ...); disabled, with a warning, without a device."""

    def __init__(self, init_scale=2.0**16, growth_factor=2.0, backoff_factor=0.5, growth_interval=2000, enabled=True):
        if enabled and amp_definitely_not_available():
            warnings.warn("GradScaler is enabled, but MUSA is not available: disabled.", stacklevel=2)
            enabled = False
        super().__init__(
            _musa_device,
            init_scale=init_scale,
            growth_factor=growth_factor,
            backoff_factor=backoff_factor,
            growth_interval=growth_interval,
            enabled=enabled,
        )
