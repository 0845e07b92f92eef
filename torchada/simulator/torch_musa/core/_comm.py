"""Copies between several devices in one call: what torch.nn.parallel.comm stands on.

The vendor binds these functions natively, and its build of torch calls them from torch.nn.parallel; `bind` does both.
`_broadcast_out`, `_scatter_out` and `_gather_out` do not exist, as in torch_musa: the `out=` forms fail.
"""

import contextlib
import types
import warnings
from collections.abc import Sequence
from typing import Any

import torch
import torch_musa
from torch import Tensor


def _place(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device("musa", index)


def broadcast(tensor: Tensor, devices: Sequence[int]) -> list[Tensor]:
    """`tensor` on each device; itself where it is already."""
    return [tensor.to(_place(index), non_blocking=True) for index in devices]


def broadcast_coalesced(tensors: Sequence[Tensor], devices: Sequence[int], buffer_size: int) -> list[list[Tensor]]:
    """The tensors on each device: a list per device. `buffer_size` (bytes) only says how real copies are grouped."""
    if not devices:
        raise RuntimeError("Expected at least one device to broadcast to")
    if any(tensor.device != _place(devices[0]) for tensor in tensors):
        raise RuntimeError(f"All tensors must be on devices[0]: {devices[0]}")
    copies = [[tensor.to(_place(index), non_blocking=True) for tensor in tensors] for index in devices[1:]]
    return [list(tensors), *copies]


def scatter(
    tensor: Tensor,
    devices: Sequence[int],
    chunk_sizes: Sequence[int] | None,
    dim: int,
    streams: Sequence[Any] | None,
) -> list[Tensor]:
    """Pieces of `tensor` along `dim`, one per device, copied on `streams` (None in it: the device's current one)."""
    if not devices:
        raise RuntimeError("Expected at least one device to scatter to")
    if chunk_sizes is None:
        pieces = tensor.chunk(len(devices), dim)
    elif len(chunk_sizes) != len(devices):
        raise RuntimeError(
            "Expected devices and chunk_sizes to be of same length, but got "
            f"len(devices) = {len(devices)} and len(chunk_sizes) = {len(chunk_sizes)}"
        )
    else:
        pieces = tensor.split_with_sizes(list(chunk_sizes), dim)
    if streams is not None and len(streams) < len(pieces):
        raise RuntimeError(f"Expected a stream for each of the {len(pieces)} chunks, but got {len(streams)}")
    results = []
    for i, (piece, index) in enumerate(zip(pieces, devices, strict=False)):
        stream = streams[i] if streams is not None else None
        if stream is not None and stream.device_index != index:
            raise RuntimeError(
                f"Expected the device associated with the stream at index {i} (was {stream.device_index}) "
                f"to match the device supplied at that index (expected {index})"
            )
        with torch_musa.stream(stream) if stream is not None else contextlib.nullcontext():
            results.append(piece.to(_place(index), non_blocking=True).contiguous())
    return results


def gather(tensors: Sequence[Tensor], dim: int, destination_index: int | None) -> Tensor:
    """The tensors put together along `dim` on a device (-1: the CPU, None: the current one)."""
    if not tensors:
        raise RuntimeError("Expected at least one tensor to gather from")
    first = tensors[0]
    for i, tensor in enumerate(tensors):
        if tensor.device.type != "musa":
            raise RuntimeError(
                f"Expected all input tensors to be MUSA tensors, but tensor at index {i} has device {tensor.device}"
            )
        if tensor.dim() != first.dim():
            raise RuntimeError(
                "Expected all input tensors to have the same number of dimensions, but "
                f"tensor at index {i} has {tensor.dim()} dimensions, (expected {first.dim()})"
            )
    if first.dim() == 0:
        warnings.warn(
            "Was asked to gather along dimension 0, but all input tensors were scalars; will instead unsqueeze "
            "and return a vector.",
            stacklevel=2,
        )
        tensors, dim = [tensor[None] for tensor in tensors], 0
    place = (
        torch.device("musa", torch_musa.current_device()) if destination_index is None else _place(destination_index)
    )
    return torch.cat([tensor.to(place, non_blocking=True) for tensor in tensors], dim)


class _VendorTorch(types.ModuleType):
    """What the vendor's build of torch sees as `torch` inside torch.nn.parallel."""

    def __init__(self, native: Any) -> None:
        super().__init__("torch")
        self._C = native
        self.cuda = torch_musa

    def __getattr__(self, name: str) -> Any:
        return getattr(torch, name)


def bind(backend: Any) -> None:
    """Put these where the vendor's are, and let torch.nn.parallel.comm find them."""
    for function in (broadcast, broadcast_coalesced, scatter, gather):
        setattr(backend, f"_{function.__name__}", function)
    import torch.nn.parallel.comm as comm

    comm.__dict__["torch"] = _VendorTorch(backend)
