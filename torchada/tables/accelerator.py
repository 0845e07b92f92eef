"""torch.accelerator: where torch_musa does not serve it yet, and where torch is older than its names."""

from ..rules import Detour, Rule, Wrap, each, pairs

_TEST = "tests/cuda/test_accelerator.py"
_BROKEN = "torch_musa < 2.11.0.post2"
_WHY = "torch_musa's allocator is none that torch.accelerator can ask"
_UNTIL = "the oldest supported torch_musa is 2.11.0.post2"
_FORWARDED = f"{_TEST}::test_memory"

RULES = (
    Rule(
        "torch.accelerator.memory:empty_cache",
        Detour(shim="accelerator:empty_cache"),
        when=_BROKEN,
        why=_WHY,
        until=_UNTIL,
        test=_FORWARDED,
    ),
    Rule(
        "torch.accelerator.memory:memory_stats",
        Detour(shim="accelerator:memory_stats"),
        when=_BROKEN,
        why=_WHY,
        until=_UNTIL,
        test=_FORWARDED,
    ),
    Rule(
        "torch.accelerator.memory:reset_accumulated_memory_stats",
        Detour(shim="accelerator:reset_accumulated_memory_stats"),
        when=_BROKEN,
        why=_WHY,
        until=_UNTIL,
        test=_FORWARDED,
    ),
    Rule(
        "torch.accelerator.memory:reset_peak_memory_stats",
        Detour(shim="accelerator:reset_peak_memory_stats"),
        when=_BROKEN,
        why=_WHY,
        until=_UNTIL,
        test=_FORWARDED,
    ),
    Rule(
        "torch.accelerator.memory:get_memory_info",
        Detour(shim="accelerator:get_memory_info"),
        when=_BROKEN,
        why=_WHY,
        until=_UNTIL,
        test=_FORWARDED,
    ),
    *pairs(
        "torch.accelerator",
        "torch_musa:",
        "empty_cache=empty_cache max_memory_allocated=max_memory_allocated max_memory_reserved=max_memory_reserved "
        "memory_allocated=memory_allocated memory_reserved=memory_reserved memory_stats=memory_stats "
        "reset_accumulated_memory_stats=reset_accumulated_memory_stats reset_peak_memory_stats=reset_peak_memory_stats",
        when="not has:torch.accelerator.memory_allocated",
        why="torch 2.7 and 2.8 have torch.accelerator without memory functions; torch_musa has them",
        test=f"{_TEST}::test_a_torch_without_memory_functions",
    ),
    *pairs(
        "torch.accelerator",
        "torch_musa:",
        "get_memory_info=mem_get_info",
        when="not has:torch.accelerator.get_memory_info",
        why="torch before 2.11 has no get_memory_info; torch_musa has it",
        test=f"{_TEST}::test_a_torch_without_memory_functions",
    ),
    *each(
        "torch.accelerator.graphs",
        "Graph",
        Wrap("accelerator:graph"),
        why="torch makes one only for a backend that registered a graph; torch_musa has a graph class instead",
        test=f"{_TEST}::test_graph",
    ),
    *pairs(
        "torch.accelerator",
        "torch.accelerator.graphs:",
        "Graph=Graph",
        when="has:torch.accelerator.graphs.Graph",
        why="one object under both names, as in torch",
        test=f"{_TEST}::test_graph",
    ),
)
