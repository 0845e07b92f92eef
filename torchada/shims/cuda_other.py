"""Graphs, collectives in one process and jiterator of torch.cuda."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch_musa

from ..errors import NotOnMusa

Function = Callable[..., Any]


# ---------------------------------------------------------------- streams
def get_stream_from_external(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def get_stream_from_external(data_ptr: int, device: Any = None) -> Any:
        torch.cuda._lazy_init()
        return torch_musa.ExternalStream(data_ptr, device)

    return get_stream_from_external


# ---------------------------------------------------------------- graphs
def graph(native: type, peer: type) -> type:
    class graph(peer):  # type: ignore[misc, valid-type]
        def __init__(
            self,
            cuda_graph: Any,
            pool: Any = None,
            stream: Any = None,
            capture_error_mode: str = "global",
            enable_annotations: bool = False,
            check_input_liveness: bool = False,
        ) -> None:
            asked = {"enable_annotations": enable_annotations, "check_input_liveness": check_input_liveness}
            for name, value in asked.items():
                if value:
                    raise NotOnMusa(f"torch.cuda.graph({name}=True)", "torch_musa's graph capture has no such mode.")
            super().__init__(cuda_graph, pool=pool, stream=stream, capture_error_mode=capture_error_mode)
            self.cuda_graph = cuda_graph

    graph.__module__, graph.__qualname__, graph.__doc__ = native.__module__, native.__qualname__, native.__doc__
    return graph


# ---------------------------------------------------------------- nccl and comm
def no_single_process_collectives(native: Function, peer: None) -> Function:
    @functools.wraps(native)
    def is_available(tensors: Sequence[torch.Tensor]) -> bool:
        return False  # torch.nn.parallel.comm then copies by itself

    return is_available


def broadcast(original: Function, tensor: torch.Tensor, devices: Any = None, *, out: Any = None) -> Any:
    """``comm.broadcast(out=)``: torch_musa binds only the form that makes its results."""
    if out is None or devices is not None:
        return original(tensor, devices, out=out)
    for at, each in enumerate(out):
        _fits(each, tensor.shape, f"at index {at}")
        each.copy_(tensor, non_blocking=True)
    return tuple(out)


def scatter(
    original: Function,
    tensor: torch.Tensor,
    devices: Any = None,
    chunk_sizes: Any = None,
    dim: int = 0,
    streams: Any = None,
    *,
    out: Any = None,
) -> Any:
    """``comm.scatter(out=)``"""
    if out is None or devices is not None or chunk_sizes is not None:
        return original(tensor, devices, chunk_sizes, dim, streams, out=out)
    _sums_up([each.size(dim) for each in out], tensor.size(dim))
    begin = 0
    for at, (each, stream) in enumerate(zip(out, streams or [None] * len(out), strict=True)):
        part = tensor.narrow(dim, begin, each.size(dim))
        _fits(each, part.shape, f"at index {at}")
        with torch.cuda.stream(stream):
            each.copy_(part, non_blocking=True)
        begin += each.size(dim)
    return tuple(out)


def gather(original: Function, tensors: Any, dim: int = 0, destination: Any = None, *, out: Any = None) -> Any:
    """``comm.gather(out=)``"""
    if out is None or destination is not None:
        return original(tensors, dim, destination, out=out)
    tensors = list(tensors)
    _sums_up([each.size(dim) for each in tensors], out.size(dim))
    begin = 0
    for each in tensors:
        part = out.narrow(dim, begin, each.size(dim))
        _fits(part, each.shape, "to gather into", anywhere=True)
        part.copy_(each, non_blocking=True)
        begin += each.size(dim)
    return out


def _fits(out: torch.Tensor, shape: torch.Size, which: str, anywhere: bool = False) -> None:
    if not anywhere and not out.is_cuda:
        raise RuntimeError(f"Expected all output tensors to be CUDA tensors, but the output tensor {which} is not")
    if out.shape != shape:
        raise RuntimeError(f"Expected the output tensor {which} to have shape {list(shape)}, got {list(out.shape)}")


def _sums_up(sizes: list[int], whole: int) -> None:
    if sum(sizes) != whole:
        raise RuntimeError(f"Expected the sizes along the dimension to sum up to {whole}, got {sizes}")


# ---------------------------------------------------------------- jiterator
def jitted_function(native: type, peer: None) -> type:
    class _JittedFunction(native):  # type: ignore[misc, valid-type]
        def __call__(self, *tensors: torch.Tensor, **kwargs: Any) -> torch.Tensor:
            raise NotOnMusa(
                f"torch.cuda.jiterator ({self.kernel_name})",
                "jiterator compiles CUDA C++ at run time and has no MUSA counterpart.",
                "write the function with torch operators, or as a MUSA extension.",
            )

    _JittedFunction.__module__, _JittedFunction.__qualname__ = native.__module__, native.__qualname__
    return _JittedFunction
