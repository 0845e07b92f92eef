"""Graphs of compiled functions: torch's own graph trees over MUSA graphs.

They serve ``torch.compile`` with ``mode="reduce-overhead"``, ``"max-autotune"`` and ``backend="cudagraphs"``.
"""

from ..rules import Detour, Forward, Rule

_TEST = "tests/cuda/test_graph_trees.py"
_TREES = "torch._inductor.cudagraph_trees"

RULES = (
    Rule(
        "torch._inductor.cudagraph_utils:check_multiple_devices_or_any_cpu_nodes",
        Detour(compares=True),
        why="torch captures functions of CUDA devices only, and asks for the type by name",
        test=f"{_TEST}::test_reduce_overhead",
    ),
    Rule(
        "torch._dynamo.backends.cudagraphs:get_device_index",
        Detour(compares=True),
        why="refuses every device whose type is not called cuda",
        test=f"{_TEST}::test_cudagraphs_backend",
    ),
    Rule(
        f"{_TREES}:_use_cuda_memory_pool_manager",
        Detour(shim="graph_trees:use_pool"),
        why="torch_musa routes allocations by stream and not by thread; the stream here is the trees' own",
        test=f"{_TEST}::test_reduce_overhead",
    ),
    Rule(
        f"{_TREES}:disable_conv_cache_emptying",
        Detour(shim="graph_trees:nothing"),
        why="muDNN keeps no cache that a benchmark of convolutions would empty, and torch_musa binds no switch for it",
        test=f"{_TEST}::test_reduce_overhead",
    ),
    Rule(
        f"{_TREES}:get_block_addrs",
        Detour(shim="graph_trees:refuse_blocks"),
        why="the debug checks of every replay read the same; without a word they would blame the program's memory",
        test=f"{_TEST}::test_checks_of_every_replay_are_refused",
    ),
    Rule(
        f"{_TREES}:get_cudagraph_segments",
        Detour(shim="graph_trees:segments"),
        why="reads the pool of a segment, which torch_musa's snapshots do not tell",
        test=f"{_TEST}::test_segments_without_their_pool",
    ),
    Rule(
        f"{_TREES}:_set_cached_tensors_enabled",
        Forward("torch._C:_set_cached_tensors_enabled"),
        why="torch puts a function that does nothing here in a build without CUDA, and its counterpart stays on",
        test=f"{_TEST}::test_reset_ends_the_cache_of_tensors",
    ),
    Rule(
        "torch._higher_order_ops.cudagraph_conditional_nodes:if_else_node",
        Detour(shim="graph_trees:refuse_cond"),
        why="MUSA graphs have no conditional nodes in torch_musa: says so",
        test=f"{_TEST}::test_cond_in_a_graph",
    ),
    Rule(
        "torch._C:_set_storage_data_ptr_access_error_msg",
        Forward("torchada.shims.graph_trees:forbid_access"),
        why="no binding; without one a view of an output that a later run has overwritten has that run's values",
        test=f"{_TEST}::test_an_output_that_was_overwritten",
    ),
    Rule(
        "torch._C:_cuda_cudaCachingAllocator_is_enabled",
        Forward("torchada.shims.graph_trees:allocator_caches"),
        why="no binding; torch_musa's allocator caches unless the environment says otherwise at the start",
        test=f"{_TEST}::test_without_a_caching_allocator",
    ),
)
