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
