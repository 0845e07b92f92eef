"""What torch_musa puts on torch.UntypedStorage."""

from typing import Any

import torch
import torch_musa

_MUSAC = torch_musa._MUSAC


@property  # type: ignore[misc]
def _is_musa(self):
    """True when this storage is on a MUSA device."""
    return self.device.type == "musa"


def _musa(self, device=None, non_blocking=False, **kwargs):
    """A copy of this storage on a MUSA device (default: the current one)."""
    index = torch_musa.core._utils._get_musa_device_index(device, optional=True)
    return self.to(device=torch.device("musa", index), non_blocking=non_blocking, **kwargs)


def _share_musa(self, *args, **kwargs):
    return _MUSAC._share_musa_(self, *args, **kwargs)


@classmethod  # type: ignore[misc]
def _new_shared_musa(cls, *args, **kwargs):
    return _MUSAC._new_shared_musa(*args, **kwargs)


@classmethod  # type: ignore[misc]
def _release_ipc_counter_musa(cls, *args, device=None, **kwargs):
    return _MUSAC._release_ipc_counter_musa(*args, **kwargs)


def _is_shared(self):
    """True when other processes can see this storage; device memory always counts as shared."""
    return True if self.is_musa else self.is_shared_old()


def _edit_device(self, device):
    return _MUSAC._edit_device_musa(self, device)


def set_storage_attributes():
    """Put these on torch.UntypedStorage. The CUDA names are overwritten as well, `is_cuda` included."""
    storage: Any = torch.UntypedStorage
    storage._share_musa_ = storage._share_cuda_ = _share_musa
    storage._new_shared_musa = storage._new_shared_cuda = _new_shared_musa
    storage._release_ipc_counter_musa = storage._release_ipc_counter_cuda = _release_ipc_counter_musa
    storage.musa = _musa
    storage.is_musa = storage.is_cuda = _is_musa
    storage.is_shared_old = storage.is_shared
    storage.is_shared = _is_shared
    storage.edit_device = _edit_device
