"""Graphs over the native binding."""

import gc
import weakref
from typing import Any

import torch_musa

from .._not_simulated import refuse

_MUSAC = torch_musa._MUSAC


def is_current_stream_capturing():
    """True while the current stream is being captured."""
    return _MUSAC._musa_isCurrentStreamCapturing()


def graph_pool_handle():
    """A new identity for a memory pool that graphs can share."""
    return _MUSAC._graph_pool_handle()


class MUSAGraph(_MUSAC._MUSAGraph):  # type: ignore[name-defined, misc]
    """A captured piece of work."""

    _graph_instances: Any = weakref.WeakSet()
    _latest: Any = None

    def __new__(cls):
        made = super().__new__(cls)
        cls._graph_instances.add(made)
        MUSAGraph._latest = weakref.ref(made)
        return made

    @classmethod
    def get_latest_instance(cls):
        """The newest graph that is alive, or None."""
        return cls._latest() if cls._latest is not None else None

    def capture_begin(self, pool=None, capture_error_mode="global"):
        """Start to capture the current stream. `pool`: from `graph_pool_handle()` or another graph."""
        if pool is None:
            super().capture_begin(capture_error_mode=capture_error_mode)
        else:
            super().capture_begin(pool=pool, capture_error_mode=capture_error_mode)

    def capture_end(self):
        """End the capture."""
        super().capture_end()

    def reinstantiate_graph(self):
        """Make the executable form anew."""
        super().reinstantiate_graph()

    def replay(self):
        """Run the captured work."""
        super().replay()

    def reset(self):
        """Forget the captured work."""
        super().reset()

    def pool(self):
        """Identity of the graph's memory pool."""
        return super().pool()

    def enable_debug_mode(self):
        """Keep what `debug_dump` needs."""
        return super().enable_debug_mode()

    def debug_dump(self, debug_path):
        """Write a description of the graph to a file."""
        return super().debug_dump(debug_path)


class graph:
    """Context manager: what runs inside is captured into `musa_graph`, on a stream of its own."""

    default_capture_stream = None

    def __init__(self, musa_graph, pool=None, stream=None, capture_error_mode="global"):
        if stream is None:
            if type(self).default_capture_stream is None:
                type(self).default_capture_stream = torch_musa.Stream()
            stream = type(self).default_capture_stream
        self.pool = () if pool is None else (pool,)
        self.capture_stream = stream
        self.stream_ctx = torch_musa.stream(stream)
        self.musa_graph = musa_graph
        self.capture_error_mode = capture_error_mode

    def __enter__(self):
        torch_musa.synchronize()
        gc.collect()  # a dead cycle may hold memory the capture could use
        torch_musa.empty_cache()
        self.stream_ctx.__enter__()
        try:
            self.musa_graph.capture_begin(*self.pool, capture_error_mode=self.capture_error_mode)
        except BaseException:
            self.stream_ctx.__exit__(None, None, None)
            raise

    def __exit__(self, exc_type, exc_value, traceback):
        try:
            self.musa_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(exc_type, exc_value, traceback)


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, allow_unused_input=False):
    """Callables whose forward and backward are graphs."""
    refuse("torch_musa.make_graphed_callables", "graph capture")


def update_musa_graph_with_profile():
    """Part of torch_musa's graph profiling."""
    refuse("torch_musa.update_musa_graph_with_profile", "graph capture")
