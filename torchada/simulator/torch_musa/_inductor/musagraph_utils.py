"""What the graph backends share: torch's module for CUDA graphs, for MUSA."""

from .._renamed import execute

execute("torch._inductor.cudagraph_utils", globals())
