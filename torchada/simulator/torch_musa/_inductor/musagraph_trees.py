"""Graphs of compiled functions that share one memory pool: torch's module for CUDA graphs, for MUSA."""

import contextlib

from .._renamed import execute

execute("torch._inductor.cudagraph_trees", globals(), changes=[("torch.backends.musa.is_built()", "False")])

from torch._C import _set_cached_tensors_enabled  # noqa: E402, F401  (torch's module asks a CUDA build for it)


@contextlib.contextmanager
def disable_conv_cache_emptying():
    """Convolutions of the device keep no cache that a benchmark would empty."""
    yield


# They capture torch.cond() as conditional nodes of a CUDA graph, which MUSA's graphs do not have.
ControlFlowOpWarmupDispatchMode = contextlib.nullcontext
CUDAGraphCaptureControlFlowOpDispatchMode = contextlib.nullcontext
