"""What torch_musa puts on torch.nn.Module and torch.distributed."""

from typing import TypeAlias, TypeVar

import torch

T = TypeVar("T", bound="torch.nn.Module")
_device: TypeAlias = torch.device | str | int | None


def _musa(self: T, device: _device = None) -> T:
    """Move all parameters and buffers to a MUSA device (default: the current one)."""
    return self._apply(lambda tensor: tensor.musa(device))  # type: ignore[attr-defined]


def is_mccl_available() -> bool:
    """True when the MCCL process group is there."""
    return hasattr(torch.distributed, "ProcessGroupMCCL")


def set_module_attributes() -> None:
    """Put these in place."""
    torch.nn.Module.musa = _musa  # type: ignore[attr-defined]
    # The vendor's torch has this function; an unpatched one gets it here.
    torch.distributed.is_mccl_available = is_mccl_available  # type: ignore[attr-defined]
