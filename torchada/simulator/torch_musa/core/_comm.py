"""Copies between several devices in one call (torch.nn.parallel.comm). The vendor binds them natively."""

from collections.abc import Sequence

import torch


def _place(index: int) -> torch.device:
    return torch.device("cpu") if index == -1 else torch.device("musa", index)


def broadcast(tensor: torch.Tensor, devices: Sequence[int]) -> list[torch.Tensor]:
    """`tensor` on each device; itself where it is already."""
    return [tensor.to(_place(index)) for index in devices]


def broadcast_coalesced(
    tensors: Sequence[torch.Tensor], devices: Sequence[int], buffer_size: int
) -> list[list[torch.Tensor]]:
    """The tensors on each device: a list per device. `buffer_size` (bytes) only says how real copies are grouped."""
    return [[tensor.to(_place(index)) for tensor in tensors] for index in devices]


def scatter(
    tensor: torch.Tensor, devices: Sequence[int], chunk_sizes: Sequence[int] | None, dim: int, streams: object
) -> list[torch.Tensor]:
    """Pieces of `tensor` along `dim`, one per device."""
    pieces = tensor.chunk(len(devices), dim) if chunk_sizes is None else tensor.split_with_sizes(list(chunk_sizes), dim)
    return [piece.to(_place(index)).contiguous() for piece, index in zip(pieces, devices, strict=False)]


def gather(tensors: Sequence[torch.Tensor], dim: int, destination: int | None) -> torch.Tensor:
    """The tensors put together along `dim` on a device (-1: the CPU, None: the current one)."""
    place = torch.device("musa") if destination is None else _place(destination)
    return torch.cat([tensor.to(place) for tensor in tensors], dim)


def bind(backend: object) -> None:
    """Put these where the vendor's are."""
    for function in (broadcast, broadcast_coalesced, scatter, gather):
        setattr(backend, f"_{function.__name__}", function)
