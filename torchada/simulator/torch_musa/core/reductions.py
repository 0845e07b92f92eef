"""Sending events and tensors to other processes."""

from multiprocessing.reduction import ForkingPickler
from typing import Any

import torch
import torch.multiprocessing.reductions as _reductions
import torch_musa

_torch_reduce_tensor = _reductions.reduce_tensor


def rebuild_event(device, handle):
    """The event of another process."""
    return torch_musa.Event.from_ipc_handle(device, handle)


def reduce_event(event):
    """How an event travels."""
    handle = event.ipc_handle()  # first: it gives an event that was never recorded its device
    return rebuild_event, (event.device, handle)


def _reduce_tensor(tensor):
    # The vendor's torch knows the MUSA device here; an unpatched one gets it by this function.
    if tensor.device.type != "musa" or tensor.layout is not torch.strided or tensor.is_nested:
        return _torch_reduce_tensor(tensor)
    if tensor.requires_grad and not tensor.is_leaf:
        return _torch_reduce_tensor(tensor)  # refuses, in torch's words
    torch.utils.hooks.warn_if_has_hooks(tensor)
    storage = tensor._typed_storage()
    device, handle, nbytes, offset, counter, counter_offset, event, must_sync = storage._share_cuda_()
    _reductions.shared_cache[handle] = _reductions.StorageWeakRef(storage)
    shape = (type(tensor), tensor.size(), tensor.stride(), tensor.storage_offset(), type(storage), tensor.dtype)
    return _reductions.rebuild_cuda_tensor, (
        *shape,
        device,
        handle,
        nbytes,
        offset,
        tensor.requires_grad,
        counter,
        counter_offset,
        event,
        must_sync,
    )


def init_reductions():
    """Register these with the pickler of multiprocessing."""
    ForkingPickler.register(torch_musa.Event, reduce_event)
    _reductions.reduce_tensor = _reduce_tensor
    kinds: tuple[Any, ...] = (torch.Tensor, torch.nn.parameter.Parameter, *torch._tensor_classes)
    for kind in kinds:
        ForkingPickler.register(kind, _reduce_tensor)
