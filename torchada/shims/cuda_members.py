"""CUDA names of members that torch_musa's own classes have under another name, or not at all.

The classes themselves stay, so ``isinstance`` and identity hold; the members are taken away again on undo.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch_musa

from ..errors import NotOnMusa

Undo = Callable[[], None]


def put(owner: Any, name: str, value: Any) -> Undo:
    """Set a name that *owner* does not have; the returned function deletes it as long as it still is ours.

    Raises AttributeError when the name is there already: the backend's own answer stays.
    """
    if name in vars(owner):
        raise AttributeError(f"{getattr(owner, '__name__', owner)} has its own {name}")
    setattr(owner, name, value)

    def undo() -> None:
        if vars(owner).get(name) is value:
            delattr(owner, name)

    return undo


def _refused(api: str, reason: str, instead: str = "") -> Any:
    def refuse(self: Any) -> Any:
        raise NotOnMusa(api, reason, instead)

    return property(refuse, doc=f"Not available on MUSA: {reason}")


# ---------------------------------------------------------------- streams and events
def cuda_stream() -> Undo:
    return put(torch_musa.Stream, "cuda_stream", property(lambda self: self.musa_stream, doc="The stream's handle."))


def cuda_stream_protocol() -> Undo:
    def __cuda_stream__(self: Any) -> tuple[int, int]:
        """(protocol version, stream handle); the handle is a musaStream_t."""
        return 0, self.musa_stream

    return put(torch_musa.Stream, "__cuda_stream__", __cuda_stream__)


def cuda_event() -> Undo:
    return put(torch_musa.Event, "cuda_event", property(lambda self: self.musa_event, doc="The event's handle."))


def new_event(original: Callable[..., Any], cls: type, *args: Any, external: bool = False, **kwargs: Any) -> Any:
    """``Event(external=...)``: False is what torch_musa's events are."""
    if len(args) > 3:
        *args, external = args  # type: ignore[assignment]
    if external:
        raise NotOnMusa(
            "torch.cuda.Event(external=True)",
            "torch_musa has no external event nodes in graph capture.",
            "an ordinary event, recorded outside the capture.",
        )
    return original(cls, *args, **kwargs)


def new_graph(original: Callable[..., Any], cls: type, keep_graph: bool = False) -> Any:
    """``CUDAGraph(keep_graph=...)``: False is what torch_musa's graphs are."""
    if keep_graph:
        raise NotOnMusa(
            "torch.cuda.CUDAGraph(keep_graph=True)",
            "torch_musa does not keep the graph it was instantiated from.",
            "CUDAGraph() without it; capture_end instantiates.",
        )
    return original(cls)


def _graph_lacks(name: str, reason: str, instead: str) -> Callable[[], Undo]:
    return lambda: put(torch_musa.MUSAGraph, name, _refused(f"torch.cuda.CUDAGraph.{name}", reason, instead))


_NO_HANDLE = ("torch_musa does not give the runtime's handle of a graph.", "debug_dump(), which writes the graph.")
register_generator_state = _graph_lacks(
    "register_generator_state", "torch_musa binds no generators to a graph.", "the device's default generator."
)
instantiate = _graph_lacks("instantiate", "torch_musa's capture_end() instantiates.", "nothing more: replay().")
raw_cuda_graph = _graph_lacks("raw_cuda_graph", *_NO_HANDLE)
raw_cuda_graph_exec = _graph_lacks("raw_cuda_graph_exec", *_NO_HANDLE)
get_graph_data = _graph_lacks("get_graph_data", *_NO_HANDLE)


# ---------------------------------------------------------------- memory pools
def new_pool(
    original: Callable[..., Any],
    self: Any,
    allocator: Any = None,
    use_on_oom: bool = False,
    no_split: bool = False,
) -> None:
    """``MemPool(use_on_oom=, no_split=)``: False is what torch_musa's pools do."""
    for name, value in (("use_on_oom", use_on_oom), ("no_split", no_split)):
        if value:
            raise NotOnMusa(f"torch.cuda.MemPool({name}=True)", "torch_musa's memory pools have no such mode.")
    original(self, allocator)


def pool_use_count() -> Undo:
    return put(
        torch_musa.MemPool,
        "use_count",
        _refused("torch.cuda.MemPool.use_count", "torch_musa does not count the uses of a pool."),
    )


def pool_snapshot() -> Undo:
    return put(
        torch_musa.MemPool,
        "snapshot",
        _refused(
            "torch.cuda.MemPool.snapshot",
            "segments in torch_musa's snapshots carry no pool id.",
            "torch.cuda.memory_snapshot(), which shows all segments.",
        ),
    )
