"""torch.cuda.memory, and the names torch.cuda takes from it."""

from ..rules import Detour, Forward, Install, Native, Noop, Refuse, Rehost, Rule, Wrap, each

_TEST = "tests/cuda/test_memory.py"
_SURFACE = "tests/cuda/test_surface.py"

RULES = (
    # torch's own Python over statistics that torch_musa gives in the same form
    Rule(
        "torch.cuda.memory:memory_summary",
        Rehost(),
        why="pure Python over the statistics",
        test=f"{_TEST}::test_memory_summary",
    ),
    *each(
        "torch.cuda.memory",
        "reset_max_memory_allocated reset_max_memory_cached memory_cached max_memory_cached",
        Rehost(),
        why="deprecated aliases with torch's own warnings; torch_musa's raise NameError or do not exist",
        test=f"{_TEST}::test_deprecated_aliases_warn_and_work",
    ),
    Rule(
        "torch.cuda.memory:_record_memory_history",
        Rehost(),
        why="torch's own choice between the two forms",
        test=f"{_TEST}::test_memory_history",
    ),
    *each(
        "torch.cuda.memory",
        "_record_memory_history_impl _record_memory_history_legacy _dump_snapshot",
        Wrap("cuda_memory:fit"),
        why="newer torch has parameters that torch_musa lacks",
        test=f"{_TEST}::test_memory_history",
    ),
    Rule(
        "torch.cuda.memory:_snapshot",
        Wrap("cuda_memory:snapshot"),
        why="newer torch has parameters that torch_musa lacks; settings are asked for by CUDA's name",
        test=f"{_TEST}::test_memory_history",
    ),
    Rule(
        "torch.cuda.memory:_set_allocator_settings",
        Wrap("cuda_memory:set_allocator_settings"),
        why="some options have other names in torch_musa, some it does not know",
        test=f"{_TEST}::test_allocator_options_at_run_time",
    ),
    *each(
        "torch._C",
        "_accelerator_setAllocatorSettings _cuda_cudaCachingAllocator_set_allocator_settings",
        Forward("torchada.shims.cuda_memory:set_accelerator_settings"),
        why="torch's own options reach no allocator of torch_musa, which has other names for some",
        test=f"{_TEST}::test_allocator_options_at_run_time",
    ),
    Rule(
        "torch.cuda.memory:memory_snapshot",
        Wrap("cuda_memory:memory_snapshot"),
        why="newer torch has parameters that torch_musa lacks",
        test=f"{_TEST}::test_memory_snapshot",
    ),
    # without a binding in torch_musa
    *each(
        "torch.cuda.memory",
        "caching_allocator_alloc",
        Wrap("cuda_memory:caching_allocator_alloc"),
        why="no binding of raw allocation: a block held by a tensor",
        test=f"{_TEST}::test_caching_allocator_by_hand",
    ),
    Rule(
        "torch.cuda.memory:caching_allocator_delete",
        Wrap("cuda_memory:caching_allocator_delete"),
        why="frees what caching_allocator_alloc gave",
        test=f"{_TEST}::test_caching_allocator_by_hand",
    ),
    Rule(
        "torch.cuda.memory:caching_allocator_enable",
        Wrap("cuda_memory:caching_allocator_enable"),
        why="it is on and cannot be switched off at run time",
        test=f"{_TEST}::test_caching_allocator_cannot_be_switched_off",
    ),
    Rule(
        "torch.cuda.memory:caching_allocator_disabled",
        Refuse(
            "torch_musa's caching allocator cannot be switched off while the program runs.",
            "set PYTORCH_NO_MUSA_MEMORY_CACHING=1 before the program starts.",
        ),
        why="no binding",
        test=f"{_TEST}::test_caching_allocator_cannot_be_switched_off",
    ),
    Rule(
        "torch.cuda.memory:set_per_process_memory_fraction",
        Wrap("cuda_memory:set_per_process_memory_fraction"),
        why="remembers the value, since torch_musa does not tell it",
        test=f"{_TEST}::test_memory_fraction",
    ),
    Rule(
        "torch.cuda.memory:get_per_process_memory_fraction",
        Wrap("cuda_memory:get_per_process_memory_fraction"),
        why="no binding: the value that was set, 1.0 before",
        test=f"{_TEST}::test_memory_fraction",
    ),
    *each(
        "torch.cuda.memory",
        "host_memory_stats host_memory_stats_as_nested_dict",
        Native(),
        why="no statistics of pinned memory in torch_musa: torch's own are empty as before initialisation",
        test=f"{_TEST}::test_host_memory_statistics_are_empty",
    ),
    *each(
        "torch.cuda",
        "host_memory_stats host_memory_stats_as_nested_dict",
        Native(),
        why="as in torch.cuda.memory",
        test=f"{_TEST}::test_host_memory_statistics_are_empty",
    ),
    *each(
        "torch.cuda.memory",
        "reset_accumulated_host_memory_stats reset_peak_host_memory_stats",
        Noop("cuda_memory:nothing_to_reset"),
        why="nothing is counted",
        test=f"{_TEST}::test_host_memory_statistics_are_empty",
    ),
    Rule(
        "torch.cuda.memory:list_gpu_processes",
        Rehost(),
        why="torch's own Python over pynvml, as torch.cuda.utilization",
        test="tests/native/test_telemetry.py::test_telemetry",
    ),
    Rule(
        "torch.cuda:list_gpu_processes",
        Forward("torch.cuda.memory:"),
        why="one object under both names, as in torch",
        test=f"{_SURFACE}::test_one_object_under_both_names",
    ),
    Rule(
        "torch.cuda.memory:_allocation_traceback",
        Wrap("cuda_memory:allocation_traceback"),
        why="no binding: None, which is torch's answer for an unknown block",
        test=f"{_TEST}::test_memory_metadata",
    ),
    Rule(
        "torch.cuda.memory:_set_memory_metadata",
        Wrap("cuda_memory:set_memory_metadata"),
        why="no binding: kept in Python",
        test=f"{_TEST}::test_memory_metadata",
    ),
    Rule(
        "torch.cuda.memory:_get_memory_metadata",
        Wrap("cuda_memory:get_memory_metadata"),
        why="no binding: kept in Python",
        test=f"{_TEST}::test_memory_metadata",
    ),
    Rule(
        "torch.cuda.memory:_host_allocator",
        Refuse("torch_musa does not bind its allocator of pinned memory."),
        why="no binding",
        test=f"{_SURFACE}::test_refusals",
    ),
    Rule(
        "torch.cuda.memory:_use_uvm",
        Refuse(
            "it allocates managed memory through the CUDA runtime bindings (cuda.bindings).",
            "torch_musa's unified memory settings.",
        ),
        why="cuda.bindings",
        test=f"{_SURFACE}::test_refusals",
    ),
    # renamed
    Rule(
        "torch.cuda.memory:CUDAPluggableAllocator",
        Forward("MUSAPluggableAllocator"),
        why="class renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    Rule(
        "torch.cuda.memory:_CUDAAllocator",
        Forward("_MUSAAllocator"),
        why="class renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    Rule(
        "torch.cuda.memory:_cuda_CUDAAllocator",
        Forward("torch_musa:_MUSAC._musa_MUSAAllocator"),
        why="class renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    Rule(
        "torch.cuda.memory:_cuda_beginAllocateToPool",
        Forward("torch_musa:_MUSAC._musa_beginAllocateToPool"),
        why="binding renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    *each(
        "torch.cuda.memory",
        "_cuda_endAllocateToPool _cuda_endAllocateCurrentStreamToPool",
        Forward("torch_musa:_MUSAC._musa_endAllocateCurrentStreamToPool"),
        why="binding renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    Rule(
        "torch.cuda.memory:_cuda_releasePool",
        Forward("torch_musa:_MUSAC._musa_releasePool"),
        why="binding renamed by the backend",
        test=f"{_TEST}::test_renamed_classes",
    ),
    Rule(
        "torch.cuda.memory:_cuda_beginAllocateCurrentThreadToPool",
        Refuse(
            "torch_musa routes the allocations of a whole device or of the current stream to a pool, not a thread's."
        ),
        why="no binding",
        test=f"{_SURFACE}::test_refusals",
    ),
    Rule(
        "torch.cuda.memory:_get_device_index",
        Forward("torch.cuda._utils:"),
        why="torch's own takes only devices of type cuda",
        test="tests/cuda/test_device.py::test_get_device_index",
    ),
    Rule(
        "torch.cuda.memory:_get_nvml_device_index",
        Forward("torch.cuda:"),
        why="one object under both names, as in torch",
        test="tests/cuda/test_device.py::test_nvml_device_index",
    ),
    # pools: torch_musa's class under torch's parameters
    Rule(
        "torch_musa.core.memory:MemPool.__init__",
        Detour(shim="cuda_members:new_pool"),
        why="torch 2.9 and later have use_on_oom= and no_split=",
        test=f"{_TEST}::test_memory_pools",
    ),
    Rule(
        "torch_musa.core.memory:MemPool.use_count",
        Install("cuda_members:pool_use_count"),
        why="no binding: says so",
        test=f"{_TEST}::test_memory_pools",
    ),
    Rule(
        "torch_musa.core.memory:MemPool.snapshot",
        Install("cuda_members:pool_snapshot"),
        why="segments carry no pool id: says so",
        test=f"{_TEST}::test_memory_pools",
    ),
    # the same objects in torch.cuda itself
    *each(
        "torch.cuda",
        "memory_summary reset_max_memory_allocated reset_max_memory_cached memory_cached "
        "max_memory_cached memory_snapshot caching_allocator_alloc caching_allocator_delete caching_allocator_enable "
        "caching_allocator_disabled set_per_process_memory_fraction get_per_process_memory_fraction "
        "reset_accumulated_host_memory_stats reset_peak_host_memory_stats "
        "CUDAPluggableAllocator _use_uvm",
        Forward("torch.cuda.memory:"),
        why="one object under both names, as in torch",
        test=f"{_SURFACE}::test_one_object_under_both_names",
    ),
)
