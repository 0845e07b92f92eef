"""The caching allocator: statistics, limits, snapshots, pools, allocators of one's own.

All sizes are in bytes. As in torch_musa 2.7.1, `reset_max_memory_allocated` and `reset_max_memory_cached`
raise NameError: they use a module this file does not import.
"""

import contextlib
import ctypes
import os
import pickle
import subprocess
import sys
from collections import OrderedDict
from collections.abc import Generator
from typing import Any

import torch_musa

from ._lazy_init import _lazy_init, is_initialized
from ._utils import DeviceUnion, _get_musa_device_index

_MUSAC = torch_musa._MUSAC
_musa_MUSAAllocator = _MUSAC._musa_MUSAAllocator
_musa_beginAllocateToPool = _MUSAC._musa_beginAllocateToPool
_musa_endAllocateCurrentStreamToPool = _MUSAC._musa_endAllocateCurrentStreamToPool
_MemPool = _MUSAC._MemPool
_MemPoolContext = _MUSAC._MemPoolContext
Device = DeviceUnion

__all__ = [
    "MUSAPluggableAllocator",
    "MemPool",
    "MemPoolContext",
    "_dump_snapshot",
    "_record_memory_history",
    "_set_allocator_settings",
    "change_current_allocator",
    "empty_cache",
    "get_allocator_backend",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_snapshot",
    "memory_stats",
    "memory_stats_all",
    "memory_stats_as_nested_dict",
    "memory_summary",
    "reset_accumulated_memory_stats",
    "reset_max_memory_allocated",
    "reset_max_memory_cached",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "use_mem_pool",
]


def empty_cache() -> None:
    """Give unused cached memory back to the device. Nothing before initialisation."""
    if is_initialized():
        _MUSAC._musa_emptyCache()


def memory_stats_as_nested_dict(device: DeviceUnion = None) -> dict[str, Any]:
    """Statistics of `device`, nested; empty before initialisation."""
    if not is_initialized():
        return {}
    return _MUSAC._musa_memoryStats(_get_musa_device_index(device, optional=True))


def _flatten(prefix: str, value: Any, into: list[tuple[str, Any]]) -> None:
    if isinstance(value, dict):
        for key, inner in value.items():
            _flatten(f"{prefix}.{key}" if prefix else key, inner, into)
    else:
        into.append((prefix, value))


def memory_stats(device: DeviceUnion = None) -> dict[str, Any]:
    """Statistics of `device` with keys such as "allocated_bytes.all.current", sorted."""
    flat: list[tuple[str, Any]] = []
    _flatten("", memory_stats_as_nested_dict(device), flat)
    return OrderedDict(sorted(flat))


def memory_stats_all() -> list[dict[str, Any]]:
    """`memory_stats` of every device, by index (of torch_musa's own only the name is known)."""
    return [memory_stats(i) for i in range(torch_musa.device_count())]


def reset_accumulated_memory_stats(device: DeviceUnion = None) -> None:
    """Set the counts of all that was allocated and freed to zero."""
    _MUSAC._musa_resetAccumulatedMemoryStats(_get_musa_device_index(device, optional=True))


def reset_peak_memory_stats(device: DeviceUnion = None) -> None:
    """Set the peaks to the present values."""
    _MUSAC._musa_resetPeakMemoryStats(_get_musa_device_index(device, optional=True))


def reset_max_memory_allocated(device: DeviceUnion = None) -> None:
    """NameError, as in torch_musa 2.7.1; use `reset_peak_memory_stats`."""
    warnings.warn("use torch.musa.reset_peak_memory_stats", FutureWarning, stacklevel=2)  # type: ignore[name-defined]  # noqa: F821
    reset_peak_memory_stats(device)


def reset_max_memory_cached(device: DeviceUnion = None) -> None:
    """NameError, as in torch_musa 2.7.1; use `reset_peak_memory_stats`."""
    warnings.warn("use torch.musa.reset_peak_memory_stats", FutureWarning, stacklevel=2)  # type: ignore[name-defined]  # noqa: F821
    reset_peak_memory_stats(device)


def _read(key: str, what: str, device: DeviceUnion) -> int:
    stats = memory_stats_as_nested_dict(device)
    return stats[key]["all"][what] if stats else 0


def memory_allocated(device: DeviceUnion = None) -> int:
    """Bytes in tensors now."""
    return _read("allocated_bytes", "current", device)


def max_memory_allocated(device: DeviceUnion = None) -> int:
    """Most bytes in tensors since the start or the last reset of the peaks."""
    return _read("allocated_bytes", "peak", device)


def memory_reserved(device: DeviceUnion = None) -> int:
    """Bytes held by the caching allocator now."""
    return _read("reserved_bytes", "current", device)


def max_memory_reserved(device: DeviceUnion = None) -> int:
    """Most bytes held by the caching allocator since the start or the last reset of the peaks."""
    return _read("reserved_bytes", "peak", device)


def set_per_process_memory_fraction(fraction: float, device: DeviceUnion = None) -> None:
    """Let this process use at most this part (0 to 1) of the device's memory."""
    _lazy_init()
    index = torch_musa.current_device() if device is None else _get_musa_device_index(device)
    if not isinstance(fraction, float):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _MUSAC._musa_setMemoryFraction(fraction, index)


def mem_get_info(device: DeviceUnion = None) -> tuple[int, int]:
    """(free, total) bytes of `device`. ValueError for a device of another type."""
    _lazy_init()
    return torch_musa.musart().musaMemGetInfo(_get_musa_device_index(device, optional=True))


def memory_snapshot() -> list[dict[str, Any]]:
    """The allocator's segments on all devices."""
    return _MUSAC._musa_memorySnapshot()["segments"]


_ROWS = (
    ("Allocated memory", "allocated_bytes", True),
    ("Active memory", "active_bytes", True),
    ("Requested memory", "requested_bytes", True),
    ("GPU reserved memory", "reserved_bytes", True),
    ("Non-releasable memory", "inactive_split_bytes", True),
    ("Allocations", "allocation", False),
    ("Active allocs", "active", False),
    ("GPU reserved segments", "segment", False),
    ("Non-releasable allocs", "inactive_split", False),
)
_COLUMNS = (("Cur Usage", "current"), ("Peak Usage", "peak"), ("Tot Alloc", "allocated"), ("Tot Freed", "freed"))


def _amount(value: float, in_bytes: bool) -> str:
    if not in_bytes:
        return f"{int(value):d}"
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 10 * 1024:
            return f"{int(value):d} {unit}"
        value /= 1024
    return f"{int(value):d} TiB"


def memory_summary(device: DeviceUnion = None, abbreviated: bool = False) -> str:
    """A table of the statistics to read."""
    index = _get_musa_device_index(device, optional=True)
    stats = memory_stats(index)
    width = 24 + 13 * len(_COLUMNS)
    rule = "|" + "-" * width + "|"
    head = f" MUSA memory summary, device {index} ".center(width)
    trouble = f" MUSA OOMs: {stats.get('num_ooms', 0)}, musaMalloc retries: {stats.get('num_alloc_retries', 0)}"
    lines = [rule, f"|{head}|", f"|{trouble:<{width}}|", rule]
    lines.append("|" + " Metric".ljust(24) + "".join(f"|{title:>11} " for title, _ in _COLUMNS) + "|")
    pools = (("all", ""),) if abbreviated else (("all", ""), ("large_pool", "large"), ("small_pool", "small"))
    for title, key, in_bytes in _ROWS:
        lines.append(rule)
        for pool, label in pools:
            cells = (_amount(stats.get(f"{key}.{pool}.{what}", 0), in_bytes) for _, what in _COLUMNS)
            name = f" {title}" if not label else f"   from {label} pool"
            lines.append("|" + name.ljust(24) + "".join(f"|{cell:>11} " for cell in cells) + "|")
    lines.append(rule)
    return "\n".join(lines) + "\n"


def _record_memory_history_legacy(
    enabled: bool,
    record_context: bool = True,
    trace_alloc_max_entries: int = 1,
    trace_alloc_record_context: bool = False,
    device: DeviceUnion = None,
    record_context_cpp: bool = False,
) -> None:
    _MUSAC._musa_record_memory_history_legacy(
        enabled, record_context, trace_alloc_max_entries, trace_alloc_record_context, record_context_cpp
    )


def _record_memory_history(enabled: Any = "all", *args: Any, **kwargs: Any) -> None:
    """Record allocator events; "state", "all", or None to stop. A bool selects the older form."""
    if isinstance(enabled, bool):
        _record_memory_history_legacy(enabled, *args, **kwargs)
    else:
        _record_memory_history_impl(enabled, *args, **kwargs)


def _record_memory_history_impl(
    enabled: str | None = "all",
    context: str | None = "all",
    stacks: str = "all",
    max_entries: int = sys.maxsize,
    device: DeviceUnion = None,
) -> None:
    _MUSAC._musa_record_memory_history(enabled, context, stacks, max_entries)


def _snapshot(device: DeviceUnion = None) -> dict[str, Any]:
    return _MUSAC._musa_memorySnapshot()


def _dump_snapshot(filename: str = "dump_snapshot.pickle") -> None:
    """Write a snapshot as a pickle, for torch's memory viewer."""
    with open(filename, "wb") as out:
        pickle.dump(_snapshot(), out)


def _select_format_flamegraph(flamegraph_lines: str) -> str:
    """Make an SVG of flame graph lines with the script that FLAMEGRAPH_PL_SCRIPT names."""
    script = os.environ.get("FLAMEGRAPH_PL_SCRIPT")
    if not script:
        raise RuntimeError(
            "set FLAMEGRAPH_PL_SCRIPT to the path of a flamegraph.pl script: the simulated torch_musa downloads none"
        )
    done = subprocess.run([script], input=flamegraph_lines, stdout=subprocess.PIPE, text=True, check=True)
    return done.stdout


def _save_segment_usage(filename: str = "output.svg", snapshot: Any = None) -> None:
    from torch.cuda._memory_viz import segments

    text = segments(_snapshot() if snapshot is None else snapshot, _select_format_flamegraph)
    with open(filename, "w") as out:
        out.write(text)


def _save_memory_usage(filename: str = "output.svg", snapshot: Any = None) -> None:
    from torch.cuda._memory_viz import memory

    text = memory(_snapshot() if snapshot is None else snapshot, _select_format_flamegraph)
    with open(filename, "w") as out:
        out.write(text)


def _set_allocator_settings(env: str) -> None:
    """Change allocator options, written as in PYTORCH_MUSA_ALLOC_CONF."""
    _MUSAC._musa_musaCachingAllocator_set_allocator_settings(env)


def get_allocator_backend() -> str:
    """Name of the allocator, "native"."""
    return _MUSAC._musa_getAllocatorBackend()


class _MUSAAllocator:
    def __init__(self, allocator: Any) -> None:
        self._allocator = allocator

    def allocator(self) -> Any:
        return self._allocator


class MUSAPluggableAllocator(_MUSAAllocator):
    """An allocator from a shared library: two functions by name."""

    def __init__(self, path_to_so_file: str, alloc_fn_name: str, free_fn_name: str) -> None:
        library = ctypes.CDLL(path_to_so_file)
        addresses = [
            ctypes.cast(getattr(library, name), ctypes.c_void_p).value for name in (alloc_fn_name, free_fn_name)
        ]
        super().__init__(_MUSAC._musa_customAllocator(*addresses))


def change_current_allocator(allocator: _MUSAAllocator) -> None:
    """Use `allocator` from now on. RuntimeError when the present one is in use already."""
    _MUSAC._musa_changeCurrentAllocator(allocator.allocator())


def _get_current_allocator() -> _MUSAAllocator:
    return _MUSAAllocator(_MUSAC._musa_getAllocator())


class MemPool(_MemPool):  # type: ignore[valid-type, misc]
    """A pool of device memory of its own; see `use_mem_pool`."""

    def __init__(self, allocator: Any = None) -> None:
        super().__init__(allocator, True)

    @property
    def id(self) -> tuple[int, int]:
        """Identity of the pool."""
        return super().id

    @property
    def allocator(self) -> Any:
        """The allocator the pool takes its memory from; None for the usual one."""
        return super().allocator


class MemPoolContext(_MemPoolContext):  # type: ignore[valid-type, misc]
    """Makes a pool the active one while the object lives."""

    def __init__(self, pool: MemPool) -> None:
        super().__init__()  # the native constructor has taken the pool

    @staticmethod
    def active_pool() -> Any:
        """The active pool, or None."""
        return _MemPoolContext.activate_pool()


@contextlib.contextmanager
def use_mem_pool(pool: MemPool, device: DeviceUnion = None) -> Generator[None, None, None]:
    """Context manager: memory on `device` comes from `pool` inside."""
    index = torch_musa.current_device() if device is None else _get_musa_device_index(device)
    holder = MemPoolContext(pool)
    _musa_beginAllocateToPool(index, pool.id)
    try:
        yield
    finally:
        _musa_endAllocateCurrentStreamToPool(index, pool.id)
        _MUSAC._musa_releasePool(index, pool.id)
        del holder
