"""torch.cuda.memory, where torch_musa lacks a function or takes fewer arguments."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any

import torch
import torch_musa

from .. import allocator
from ..errors import NotOnMusa

Function = Callable[..., Any]


def fit(native: Function, peer: Function) -> Function:
    """*peer* under the signature of *native*: parameters that *peer* lacks are accepted with their default only.

    Raises NotOnMusa for another value.
    """
    signature = inspect.signature(native)
    known = inspect.signature(peer).parameters
    lacking = {name: parameter.default for name, parameter in signature.parameters.items() if name not in known}
    api = f"torch.cuda.memory.{native.__name__}"

    @functools.wraps(native)
    def fitted(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs).arguments
        for name, default in lacking.items():
            if name in given and given.pop(name) != default:
                raise NotOnMusa(f"{api}({name}=...)", f"torch_musa's {peer.__name__} has no such parameter.")
        return peer(**given)

    return fitted


# ---------------------------------------------------------------- the caching allocator by hand
_blocks: dict[int, torch.Tensor] = {}


def caching_allocator_alloc(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def caching_allocator_alloc(size: int, device: Any = None, stream: Any = None) -> int:
        index = torch.cuda.current_device() if device is None else torch.cuda._get_device_index(device)
        if stream is None:
            stream = torch.cuda.current_stream(index)
        if isinstance(stream, int):
            stream = torch.cuda.ExternalStream(stream, index)
        elif not isinstance(stream, torch.cuda.Stream):
            raise TypeError(
                "Invalid type for stream argument, must be `torch.cuda.Stream` or `int` representing a pointer to "
                "an existing stream"
            )
        with torch.cuda.device(index), torch.cuda.stream(stream):
            block = torch.empty(size, dtype=torch.uint8, device=torch.device("musa", index))
        # The block lives as long as this tensor does.
        _blocks[block.data_ptr()] = block
        return block.data_ptr()

    return caching_allocator_alloc


def caching_allocator_delete(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def caching_allocator_delete(mem_ptr: int) -> None:
        if _blocks.pop(mem_ptr, None) is None:
            torch_musa._MUSAC._musa_musaCachingAllocator_raw_delete(mem_ptr)

    return caching_allocator_delete


_NO_SWITCH = "torch_musa's caching allocator cannot be switched off while the program runs."
_SWITCH = "set PYTORCH_NO_MUSA_MEMORY_CACHING=1 before the program starts."


def caching_allocator_enable(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def caching_allocator_enable(value: bool = True) -> None:
        if not value:
            raise NotOnMusa("torch.cuda.caching_allocator_enable(False)", _NO_SWITCH, _SWITCH)

    return caching_allocator_enable


# ---------------------------------------------------------------- fractions
_fractions: dict[int, float] = {}


def set_per_process_memory_fraction(native: Function, peer: Function) -> Function:
    @functools.wraps(native)
    def set_per_process_memory_fraction(fraction: float, device: Any = None) -> None:
        peer(fraction, device)
        index = torch.cuda.current_device() if device is None else torch.cuda._get_device_index(device)
        _fractions[index] = fraction

    return set_per_process_memory_fraction


def get_per_process_memory_fraction(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def get_per_process_memory_fraction(device: Any = None) -> float:
        torch.cuda._lazy_init()
        index = torch.cuda.current_device() if device is None else torch.cuda._get_device_index(device)
        return _fractions.get(index, 1.0)

    return get_per_process_memory_fraction


# ---------------------------------------------------------------- statistics and snapshots
def nothing_to_reset(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def reset() -> None:
        return None

    return reset


def set_allocator_settings(native: Function, peer: Function) -> Function:
    @functools.wraps(native)
    def _set_allocator_settings(env: str) -> None:
        return peer(allocator.translate(env))

    return _set_allocator_settings


def set_accelerator_settings(env: str) -> None:
    """``torch._C._accelerator_setAllocatorSettings`` and the older binding of CUDA's allocator."""
    torch_musa._MUSAC._musa_musaCachingAllocator_set_allocator_settings(allocator.translate(env))


def snapshot(native: Function, peer: Function) -> Function:
    """As ``fit``; the allocator's settings are there under CUDA's name too."""
    fitted = fit(native, peer)

    @functools.wraps(native)
    def _snapshot(*args: Any, **kwargs: Any) -> Any:
        taken = fitted(*args, **kwargs)
        settings = taken.get("allocator_settings", {})
        if allocator.MUSA in settings:
            settings[allocator.CUDA[1]] = settings[allocator.MUSA]
        return taken

    return _snapshot


def memory_snapshot(native: Function, peer: Function) -> Function:
    @functools.wraps(native)
    def memory_snapshot(mempool_id: Any = None, include_traces: bool = True) -> Any:
        # Segments carry no traces here, so include_traces has nothing to leave out.
        if mempool_id is not None:
            raise NotOnMusa(
                "torch.cuda.memory_snapshot(mempool_id=...)",
                "segments in torch_musa's snapshots carry no pool id.",
                "torch.cuda.memory_snapshot(), which shows all segments.",
            )
        return peer()

    return memory_snapshot


def allocation_traceback(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def _allocation_traceback(data_ptr: int) -> None:
        return None

    return _allocation_traceback


_metadata = ""


def set_memory_metadata(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def _set_memory_metadata(metadata: str) -> None:
        global _metadata
        _metadata = metadata

    return _set_memory_metadata


def get_memory_metadata(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def _get_memory_metadata() -> str:
        return _metadata

    return _get_memory_metadata
