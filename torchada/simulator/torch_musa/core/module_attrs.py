"""What torch_musa puts on torch.nn.Module and torch.distributed."""

from typing import TypeAlias, TypeVar

import torch

from .process_group import is_mccl_available, register_process_group  # noqa: F401

T = TypeVar("T", bound="torch.nn.Module")
_device: TypeAlias = torch.device | str | int | None


def _musa(self: T, device: _device = None) -> T:
    """Move all parameters and buffers to a MUSA device (default: the current one)."""
    return self._apply(lambda tensor: tensor.musa(device))  # type: ignore[attr-defined]


def set_module_attributes() -> None:
    """Put these in place."""
    torch.nn.Module.musa = _musa  # type: ignore[attr-defined]
    register_process_group()
