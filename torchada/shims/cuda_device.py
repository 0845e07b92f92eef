"""torch.cuda's device management, where torch_musa's function is not simply the same."""

from __future__ import annotations

import ctypes
import functools
import os
import re
import uuid
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch_musa

from ..errors import NotOnMusa, TorchadaWarning

# Fields of CUDA's device properties that the MUSA runtime knows and torch_musa does not bind: the runtime's
# attribute number, and what its value is multiplied with to get CUDA's unit.
_ATTRIBUTES = {
    "max_threads_per_block": 1,
    "shared_memory_per_block": 8,
    "warp_size": 10,
    "regs_per_block": 12,
    "clock_rate": 13,
    "pci_bus_id": 33,
    "pci_device_id": 34,
    "memory_clock_rate": 36,
    "memory_bus_width": 37,
    "L2_cache_size": 38,
    "max_threads_per_multi_processor": 39,
    "pci_domain_id": 50,
    "shared_memory_per_multiprocessor": 81,
    "regs_per_multiprocessor": 82,
    "shared_memory_per_block_optin": 97,
}
_OWN_FIELDS = (
    "name",
    "major",
    "minor",
    "total_memory",
    "multi_processor_count",
    "is_integrated",
    "is_multi_gpu_board",
)


@functools.cache
def runtime_library() -> ctypes.CDLL | None:
    """The MUSA runtime library, or None where there is none.

    Last comes torch_musa's own module: through it the library that it is linked with is found under any name, and
    the simulated device answers what it has of the runtime.
    """
    for name in ("libmusart.so", "libmusart.so.4", "libmusart.so.3", torch_musa._MUSAC.__file__):
        try:
            return ctypes.CDLL(name)
        except OSError:
            continue
    return None


class CudaDeviceProperties:
    """What ``torch.cuda.get_device_properties`` returns: torch_musa's fields, and CUDA's further ones.

    The further fields are asked from the MUSA runtime; where it cannot be asked they raise NotOnMusa, which is an
    AttributeError, so ``hasattr`` and ``getattr`` with a default work. ``total_memory`` and cache sizes are in bytes,
    clock rates in kilohertz.
    """

    __slots__ = ("_index", "_native")

    def __init__(self, native: Any, index: int) -> None:
        self._native = native
        self._index = index

    def __getattr__(self, name: str) -> Any:
        if name in _OWN_FIELDS:
            return getattr(self._native, name)
        if name == "gcnArchName":  # on NVIDIA builds of torch it is the device's name
            return self._native.name
        if name in _ATTRIBUTES:
            return _runtime_attribute(name, self._index)
        if name == "uuid":
            return _uuid(self._index)
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}", name=name, obj=self)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *_OWN_FIELDS, "gcnArchName", *_ATTRIBUTES})

    def __repr__(self) -> str:
        own = self._native
        return (
            f"_CudaDeviceProperties(name='{own.name}', major={own.major}, minor={own.minor}, "
            f"total_memory={own.total_memory // 2**20}MB, multi_processor_count={own.multi_processor_count})"
        )


CudaDeviceProperties.__name__ = CudaDeviceProperties.__qualname__ = "_CudaDeviceProperties"
CudaDeviceProperties.__module__ = "torch.cuda"


def _uuid(index: int) -> uuid.UUID:
    """The device's UUID from the management library; with ``bytes`` and a text, as torch's own object has."""
    try:
        handle = torch.cuda._get_pynvml_handler(index)
        text = torch.cuda.pynvml.nvmlDeviceGetUUID(handle)  # type: ignore[attr-defined]
    except ModuleNotFoundError:
        raise NotOnMusa(
            "_CudaDeviceProperties.uuid",
            "torch_musa does not bind the device's UUID, and mthreads-ml-py, which knows it, is not installed.",
            "pip install mthreads-ml-py, or the device index.",
        ) from None
    except (RuntimeError, torch.cuda.pynvml.NVMLError) as error:  # type: ignore[attr-defined]
        raise NotOnMusa(
            "_CudaDeviceProperties.uuid",
            f"torch_musa does not bind the device's UUID, and the management library does not tell it: {error}.",
            "the device index.",
        ) from error
    found = re.search(r"[0-9a-fA-F]{8}(-?[0-9a-fA-F]{4}){3}-?[0-9a-fA-F]{12}", os.fsdecode(text))
    if found is None:
        raise NotOnMusa("_CudaDeviceProperties.uuid", f"the management library answers {text!r}, which is no UUID.")
    return uuid.UUID(found.group())


def _runtime_attribute(name: str, index: int) -> int:
    ask = getattr(runtime_library(), "musaDeviceGetAttribute", None)
    if ask is None:
        raise NotOnMusa(
            f"_CudaDeviceProperties.{name}",
            "torch_musa does not bind this field and the MUSA runtime (libmusart) cannot be asked here.",
            f"getattr(properties, {name!r}, your_default).",
        )
    value = ctypes.c_int()
    status = ask(ctypes.byref(value), _ATTRIBUTES[name], index)
    if status != 0:
        raise NotOnMusa(f"_CudaDeviceProperties.{name}", f"the MUSA runtime answered with error {status}.")
    return value.value


_properties: dict[int, CudaDeviceProperties] = {}  # one object for each device: CUDA programs compare them


def get_device_properties(native: Callable[..., Any], peer: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_device_properties(device: Any = None) -> CudaDeviceProperties:
        found = peer(device)  # raises for a device that is not there
        index = torch.cuda._get_device_index(device, optional=True)
        return _properties.setdefault(index, CudaDeviceProperties(found, index))

    return get_device_properties


def get_arch_list(native: Callable[..., Any], peer: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_arch_list() -> list[str]:
        return [arch if "_" in arch else f"mp_{arch}" for arch in peer()]

    return get_arch_list


def get_gencode_flags(native: Callable[..., Any], peer: None) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_gencode_flags() -> str:
        return " ".join(f"--offload-arch={arch}" for arch in torch.cuda.get_arch_list())

    return get_gencode_flags


# ---------------------------------------------------------------- state
def initialized() -> bool:
    return bool(torch_musa.core._lazy_init._initialized)


def default_generators() -> tuple[torch.Generator, ...]:
    """One generator per device; empty before initialisation, as in torch."""
    return tuple(getattr(torch_musa, "default_generators", ()))


def device_properties_hook() -> Any:
    """``torch.cuda._get_device_properties``, which torch's C++ defines at initialisation."""
    return torch_musa._get_device_properties


def _is_compiled() -> bool:
    return True


# ---------------------------------------------------------------- sync debug mode
_sync_debug_mode = 0
_SYNC_MODES = {"default": 0, "warn": 1, "error": 2}


def set_sync_debug_mode(native: Callable[..., Any], peer: None) -> Callable[..., Any]:
    @functools.wraps(native)
    def set_sync_debug_mode(debug_mode: int | str) -> None:
        global _sync_debug_mode
        torch.cuda._lazy_init()
        if isinstance(debug_mode, str):
            if debug_mode not in _SYNC_MODES:
                raise RuntimeError("invalid value of debug_mode, expected one of `default`, `warn`, `error`")
            debug_mode = _SYNC_MODES[debug_mode]
        if debug_mode not in (0, 1, 2):
            raise RuntimeError("invalid value of debug_mode, expected one of 0, 1, 2")
        if debug_mode:
            warnings.warn(
                "torch.cuda.set_sync_debug_mode: the mode is kept, but torch_musa has no check of synchronizing "
                "operations, so none will warn or raise.",
                TorchadaWarning,
                stacklevel=2,
            )
        _sync_debug_mode = int(debug_mode)

    return set_sync_debug_mode


def get_sync_debug_mode(native: Callable[..., Any], peer: None) -> Callable[..., Any]:
    @functools.wraps(native)
    def get_sync_debug_mode() -> int:
        torch.cuda._lazy_init()
        return _sync_debug_mode

    return get_sync_debug_mode


def device_memory_used(native: Callable[..., Any], peer: None) -> Callable[..., Any]:
    @functools.wraps(native)
    def device_memory_used(device: Any = None) -> int:
        free, total = torch.cuda.mem_get_info(device)
        return total - free

    return device_memory_used


# ---------------------------------------------------------------- the availability group
def answer_true(original: Callable[..., bool], *args: Any, **kwargs: Any) -> bool:
    return True
