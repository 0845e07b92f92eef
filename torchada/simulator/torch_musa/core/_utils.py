"""Devices, as torch_musa's functions take them."""

import os
from typing import Any, TypeAlias

import torch
import torch_musa
from torch._utils import _get_device_index

DeviceUnion: TypeAlias = torch.device | str | int | None

_DEVICE: Any = torch.device


def _get_musa_device_index(device: Any, optional: bool = False, allow_cpu: bool = False) -> int:
    """Index of `device`: int as it is, None (only if `optional`) the current device, -1 for an allowed cpu.

    Raises ValueError for a device of another type, a `cuda` one included.
    """
    if device is None and optional:
        return torch_musa._MUSAC._musa_getDevice()  # the common case, without the detours below
    if isinstance(device, int):
        return device
    if isinstance(device, str):
        device = _DEVICE(device)
    if isinstance(device, _DEVICE):
        if device.type != "musa" and not (allow_cpu and device.type == "cpu"):
            wanted = "musa or cpu" if allow_cpu else "musa"
            raise ValueError(f"Expected a {wanted} device, but got: {device}")
        if device.index is None and optional and device.type == "musa":
            return torch_musa._MUSAC._musa_getDevice()
    elif isinstance(device, torch_musa.core.device.Device):
        return device.idx
    return _get_device_index(device, optional, allow_cpu)


def _dummy_type(name: str) -> type:
    """A class that stands for a native one that is missing: it cannot be made."""

    def refuse(self: Any, *args: Any, **kwargs: Any) -> Any:
        raise RuntimeError(f"Tried to instantiate dummy base class {name}")

    return type(name, (object,), {"__init__": refuse})


def _get_musa_arch() -> int:
    """Architecture number of device 0 (31 for capability 3.1), or what TORCH_MUSA_ARCH says."""
    text = os.environ.get("TORCH_MUSA_ARCH")
    if text:
        return int(text)
    major, minor = torch_musa.get_device_capability(0)
    return major * 10 + minor
