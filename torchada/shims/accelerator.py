"""torch.accelerator's memory functions, by torch_musa's own."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any

import torch
import torch_musa
from torch.accelerator import _utils  # type: ignore[attr-defined, unused-ignore]


def _index(device: Any) -> int:
    return _utils._get_device_index(device, optional=True)  # type: ignore[no-any-return]


def empty_cache(original: Callable[..., None]) -> None:
    torch_musa.empty_cache()


def memory_stats(original: Callable[..., Any], device_index: Any = None, /) -> OrderedDict[str, Any]:
    return torch_musa.memory_stats(_index(device_index))  # type: ignore[no-any-return]


def reset_accumulated_memory_stats(original: Callable[..., None], device_index: Any = None, /) -> None:
    torch_musa.reset_accumulated_memory_stats(_index(device_index))


def reset_peak_memory_stats(original: Callable[..., None], device_index: Any = None, /) -> None:
    torch_musa.reset_peak_memory_stats(_index(device_index))


def get_memory_info(original: Callable[..., Any], device_index: Any = None, /) -> tuple[int, int]:
    return torch_musa.mem_get_info(_index(device_index))  # type: ignore[no-any-return]


def graph(native: type, peer: None) -> type:
    """``torch.accelerator.Graph``, which torch makes only for backends that registered a graph of their own."""

    class Graph:
        def __init__(
            self,
            keep_graph: bool = False,
            *,
            pool: tuple[int, int] | None = None,
            capture_error_mode: str = "default",
        ) -> None:
            self._graph = torch.cuda.CUDAGraph(keep_graph)
            self.graph_pool = pool
            self.capture_error_mode = capture_error_mode

        def capture_begin(self) -> None:
            mode = "global" if self.capture_error_mode == "default" else self.capture_error_mode
            pool = {} if self.graph_pool is None else {"pool": self.graph_pool}
            self._graph.capture_begin(**pool, capture_error_mode=mode)

        def __enter__(self) -> None:
            torch.accelerator.synchronize()
            torch.accelerator.empty_cache()
            self.capture_begin()

        def __exit__(self, *exc_info: object) -> None:
            self.capture_end()

        def __getattr__(self, name: str) -> Any:
            if name not in _SHARED:
                raise AttributeError(f"'Graph' object has no attribute {name!r}", name=name, obj=self)
            return getattr(self._graph, name)

        def __dir__(self) -> list[str]:
            return sorted({*super().__dir__(), *_SHARED})

    Graph.__module__, Graph.__qualname__, Graph.__doc__ = native.__module__, native.__qualname__, native.__doc__
    return Graph


_SHARED = ("capture_end", "debug_dump", "enable_debug_mode", "instantiate", "pool", "replay", "reset")
