"""What torch's graph trees ask CUDA for, answered for the backend."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
import torch_musa

from ..errors import NotOnMusa, TorchadaError, tell
from ..platform import env_flag
from .device import BACKEND

Function = Callable[..., Any]
_unnoticed: list[Exception] = []  # why memory that was overwritten cannot be marked in this process


@contextmanager
def use_pool(original: Function, /, device: int, mem_pool: tuple[int, int], stream: Any) -> Iterator[None]:
    """Allocations on *stream* come from *mem_pool*."""
    core = torch_musa._MUSAC
    torch_musa.synchronize()
    stream.wait_stream(torch_musa.current_stream())
    with torch_musa.stream(stream), torch.device(BACKEND, device):
        core._musa_beginAllocateCurrentStreamToPool(device, mem_pool)
        try:
            yield
        finally:
            core._musa_endAllocateCurrentStreamToPool(device, mem_pool)
            core._musa_releasePool(device, mem_pool)
    torch_musa.current_stream().wait_stream(stream)


def nothing(original: Function, /) -> AbstractContextManager[None]:
    return nullcontext()


def segments(original: Function, /, pool_id: tuple[int, int]) -> Any:
    if any("segment_pool_id" not in segment for segment in torch_musa.memory_snapshot()):
        raise RuntimeError(
            f"memory is alive in graph pool {pool_id} that the compiled functions' outputs do not account for. Which "
            "it is cannot be told: the memory snapshots of torch_musa do not name the pool of a segment. On CUDA the "
            "cause is mostly a tensor that a custom operator keeps, or a wrong alias in its meta function."
        )
    return original(pool_id)


def refuse_blocks(original: Function, /, *args: Any, **kwargs: Any) -> Any:
    raise NotOnMusa(
        "torch._inductor.config.triton.fast_path_cudagraph_asserts",
        "the memory snapshots of torch_musa do not name the pool of a segment.",
        "slow_path_cudagraph_asserts, which is on by default and asks the allocator.",
    )


def refuse_cond(original: Function, /, *args: Any, **kwargs: Any) -> Any:
    raise NotOnMusa(
        "torch.cond() in a CUDA graph",
        "torch_musa's graphs have no conditional nodes.",
        'torch.compile with mode="reduce-overhead", which leaves it out of the graphs.',
    )


def forbid_access(storage: int, message: str) -> None:
    """``_set_storage_data_ptr_access_error_msg``: from now on whoever asks for this memory gets the message.

    Where the compiled part for that cannot be had, a warning says once what goes unnoticed.
    """
    from . import cpp_ops

    if _unnoticed:
        return
    try:
        cpp_ops.forbid(storage, message)
    except (TorchadaError, ValueError, OSError) as error:
        if env_flag("TORCHADA_STRICT"):
            raise
        _unnoticed.append(error)
        tell(
            "a view of a compiled function's output that a later run of its graph has overwritten raises no error "
            f"here: it has the later run's values. {error} Clone outputs that are kept over a step."
        )


def allocator_caches() -> bool:
    return os.environ.get("PYTORCH_NO_MUSA_MEMORY_CACHING") is None
