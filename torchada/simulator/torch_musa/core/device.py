"""Devices: choosing, counting, describing, synchronising."""

from functools import lru_cache
from typing import Any

import torch
import torch_musa

from . import _lazy_init as _lazy
from ._lazy_init import _lazy_init
from ._utils import DeviceUnion, _get_musa_device_index

_MUSAC = torch_musa._MUSAC
_MusaDeviceProperties = _MUSAC._MusaDeviceProperties
_exchange_device = _MUSAC._musa_exchangeDevice
_maybe_exchange_device = _MUSAC._musa_maybeExchangeDevice
_device_t = DeviceUnion


class _DeviceGuard:
    def __init__(self, index: int) -> None:
        self.idx = index
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


class Device:
    """Context manager: `device` is the current device inside. A negative index or None changes nothing."""

    def __init__(self, device: Any) -> None:
        self.idx = _get_musa_device_index(device, optional=True)
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = _exchange_device(self.idx)

    def __exit__(self, *args: Any) -> None:
        self.idx = _maybe_exchange_device(self.prev_idx)


_lazy.device = Device  # type: ignore[attr-defined]  # that module loads before this one and names it too


class DeviceOf(Device):
    """Context manager: the device of a tensor or storage is current inside; nothing for one elsewhere."""

    def __init__(self, obj: Any) -> None:
        super().__init__(obj.get_device() if obj.is_musa else -1)


@lru_cache(maxsize=1)
def device_count() -> int:
    """How many devices there are. The first answer is kept for the life of the process."""
    return _MUSAC._musa_getDeviceCount()


def is_available() -> bool:
    """True when there is a device."""
    return device_count() > 0


def set_device(device: Any) -> None:
    """Make `device` current. ValueError for a device of another type."""
    index = _get_musa_device_index(device)
    if index >= 0:
        _MUSAC._musa_setDevice(index)


def current_device() -> int:
    """Index of the current device."""
    _lazy_init()
    return _MUSAC._musa_getDevice()


def synchronize(device: DeviceUnion = None) -> None:
    """Wait until everything queued on `device` (default: the current one) is done."""
    _lazy_init()
    if device is None:
        _MUSAC._musa_synchronize()
        return
    with Device(device):
        _MUSAC._musa_synchronize()


def can_device_access_peer(device: DeviceUnion, peer_device: DeviceUnion) -> bool:
    """True when `device` can read the memory of `peer_device`. AssertionError for a device that is not there."""
    _lazy_init()
    index = _get_musa_device_index(device, optional=True)
    peer = _get_musa_device_index(peer_device)
    for name, one in (("device id", index), ("peer device id", peer)):
        if not 0 <= one < device_count():
            raise AssertionError(f"Invalid {name}: {one}")
    return _MUSAC._musa_canDeviceAccessPeer(index, peer)


def get_device_properties(device: DeviceUnion) -> Any:
    """Properties of `device`: name, major, minor, total_memory (bytes), multi_processor_count, is_integrated,
    is_multi_gpu_board. AssertionError for a device that is not there."""
    _lazy_init()  # binds torch_musa._get_device_properties
    index = _get_musa_device_index(device, optional=True)
    if not 0 <= index < device_count():
        raise AssertionError("Invalid device id")
    return torch_musa._get_device_properties(index)  # type: ignore[attr-defined]


def get_device_name(device: DeviceUnion = None) -> str:
    """Name of `device`."""
    return get_device_properties(device).name


def get_device_capability(device: DeviceUnion = None) -> tuple[int, int]:
    """Capability of `device` as (major, minor), in MUSA's own numbering."""
    properties = get_device_properties(device)
    return properties.major, properties.minor


def get_arch_list() -> list[str]:
    """Architectures the backend is built for, as bare numbers ("31"); empty without a device."""
    if not is_available():
        return []
    flags = _MUSAC._musa_getArchFlags()
    return flags.split() if flags else []


@lru_cache(maxsize=16)
def _check_bf16_tensor_supported(device: DeviceUnion) -> bool:
    try:
        torch.tensor([1.0], dtype=torch.bfloat16, device=device)
    except (RuntimeError, TypeError):
        return False
    return True


def is_bf16_supported(including_emulation: bool = True) -> bool:
    """True when the current device computes in bfloat16 (or, with `including_emulation`, can hold it)."""
    if get_device_capability()[0] >= 3:
        return True
    return including_emulation and _check_bf16_tensor_supported(torch.device("musa", current_device()))


def is_tf32_supported() -> bool:
    """True when the current device has TF32 matrix units."""
    return get_device_capability() >= (2, 2)


def register_musa_hook() -> None:
    """Register the device hooks with torch; done once at import."""
    _MUSAC._musa_register_device_hook()
