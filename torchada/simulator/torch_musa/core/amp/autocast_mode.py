"""autocast with the device filled in."""

import torch

from .common import _musa_device

__all__ = ["autocast", "custom_bwd", "custom_fwd"]


class autocast(torch.amp.autocast_mode.autocast):
    """torch.autocast("musa", ...)."""

    def __init__(self, enabled=True, dtype=torch.float16, cache_enabled=True):
        super().__init__(_musa_device, enabled=enabled, dtype=dtype, cache_enabled=cache_enabled)

    def __enter__(self):
        return super().__enter__()

    def __exit__(self, exc_type, exc_val, exc_tb):
        return super().__exit__(exc_type, exc_val, exc_tb)

    def __call__(self, func):
        return super().__call__(func)


def _cast(value, dtype):
    return torch.amp.autocast_mode._cast(value, _musa_device, dtype)


def custom_fwd(fwd=None, *, cast_inputs=None):
    """torch.amp.custom_fwd for MUSA: forward of an autograd function under autocast."""
    return torch.amp.custom_fwd(fwd, device_type=_musa_device, cast_inputs=cast_inputs)


def custom_bwd(bwd):
    """torch.amp.custom_bwd for MUSA: backward with the autocast state of the forward."""
    return torch.amp.custom_bwd(bwd, device_type=_musa_device)
