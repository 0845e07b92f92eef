"""What of autocast belongs to the backend."""

from importlib.util import find_spec

import torch
import torch_musa

__all__ = ["amp_definitely_not_available", "get_amp_supported_dtype"]

_musa_device = torch._C._get_privateuse1_backend_name()
_torch_is_autocast_enabled = torch.is_autocast_enabled
_torch_set_autocast_enabled = torch.set_autocast_enabled


def amp_definitely_not_available():
    """True when autocast cannot work: no device, or torch_xla is installed."""
    return not (torch_musa.is_available() or find_spec("torch_xla"))


def get_amp_supported_dtype():
    """The dtypes autocast can use; torch.autocast asks for them."""
    return [torch.float16, torch.bfloat16]


def _musa_is_autocast_enabled(*args, **kwargs):
    # The forms without a device mean CUDA in torch, and MUSA here.
    return _torch_is_autocast_enabled(*args, **kwargs) if args or kwargs else _torch_is_autocast_enabled(_musa_device)


def _musa_set_autocast_enabled(*args, **kwargs):
    if len(args) + len(kwargs) == 1:
        return _torch_set_autocast_enabled(_musa_device, *args, **kwargs)
    return _torch_set_autocast_enabled(*args, **kwargs)


def _hook_autocast_common():
    torch.is_autocast_enabled = _musa_is_autocast_enabled
    torch.set_autocast_enabled = _musa_set_autocast_enabled
