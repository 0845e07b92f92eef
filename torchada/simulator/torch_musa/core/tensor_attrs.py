"""What torch_musa puts on torch.Tensor."""

from typing import Any

import torch
import torch_musa

_native_musa = torch_musa._MUSAC._musa
_native_is_musa = torch_musa._MUSAC._is_musa


def _musa(self, *args, **kwargs):
    """A copy of this tensor on a MUSA device (default: the current one)."""
    return _native_musa(self, *args, **kwargs)


@property  # type: ignore[misc]
def _is_musa(self):
    """True when this tensor is on a MUSA device."""
    return _native_is_musa(self)


def _pin_memory(self, device="musa"):
    """A copy in pinned memory."""
    # torch takes the accelerator by itself, and newer versions warn when it is named.
    return self.orig_pin_memory() if _means_musa(device) else self.orig_pin_memory(device)


def _is_pinned(self, device="musa"):
    """True when this tensor is in pinned memory."""
    return self.orig_is_pinned() if _means_musa(device) else self.orig_is_pinned(device)


def _means_musa(device):
    return device is None or device == "musa" or getattr(device, "type", None) == "musa"


def _to(self, *args, **kwargs):
    """Tensor.to."""
    return self.orig_to(*args, **kwargs)


def set_torch_attributes():
    """Put these on torch.Tensor; the former methods stay as `orig_*`."""
    tensor: Any = torch.Tensor
    tensor.is_musa = _is_musa
    tensor.musa = _musa
    tensor.orig_pin_memory = tensor.pin_memory
    tensor.orig_is_pinned = tensor.is_pinned
    tensor.orig_to = tensor.to
    tensor.pin_memory = _pin_memory
    tensor.is_pinned = _is_pinned
    tensor.to = _to
