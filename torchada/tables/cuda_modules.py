"""The smaller submodules of torch.cuda."""

from ..rules import Detour, Forward, Install, Native, Noop, Refuse, Rehost, Rule, Stub, Wrap, each

_RANDOM = "tests/cuda/test_random.py"
_AMP = "tests/cuda/test_amp.py"
_OTHER = "tests/cuda/test_other.py"
_SURFACE = "tests/cuda/test_surface.py"

RANDOM = (
    *each(
        "torch.cuda.random",
        "get_rng_state set_rng_state",
        Rehost(),
        why="torch_musa's differ in the default device string and refuse devices of type cuda",
        test=f"{_SURFACE}::test_signature_is_the_installed_torchs",
    ),
    Rule(
        "torch.cuda.random:is_initialized",
        Forward("torch.cuda:"),
        why="the rehosted set_rng_state asks it",
        test=f"{_RANDOM}::test_states_are_set_at_once",
    ),
    *each(
        "torch.cuda",
        "get_rng_state set_rng_state",
        Forward("torch.cuda.random:"),
        why="one object under both names, as in torch",
        test=f"{_SURFACE}::test_one_object_under_both_names",
    ),
)

AMP = (
    Rule(
        "torch.cuda.amp:amp_definitely_not_available",
        Forward("torch.cuda.amp.common:"),
        why="mixed precision works on MUSA although torch.cuda.is_available() says False",
        test=f"{_AMP}::test_amp_is_available",
    ),
    *each(
        "torch.cuda.amp",
        "autocast GradScaler custom_fwd custom_bwd",
        Native(),
        why="torch's own, with its warnings; the device string cuda is translated where torch.amp takes it",
        test=f"{_AMP}::test_classes_are_torchs_own",
    ),
    *each(
        "torch.cuda.amp.autocast_mode",
        "autocast custom_fwd custom_bwd _cast",
        Native(),
        why="as torch.cuda.amp",
        test=f"{_AMP}::test_classes_are_torchs_own",
    ),
    *each(
        "torch.cuda.amp.grad_scaler",
        "GradScaler OptState",
        Native(),
        why="as torch.cuda.amp",
        test=f"{_AMP}::test_classes_are_torchs_own",
    ),
)

_GRAPHS = "tests/cuda/test_graphs.py"
GRAPHS = (
    Rule(
        "torch.cuda.graphs:CUDAGraph",
        Forward("MUSAGraph"),
        why="class renamed by the backend",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.__new__",
        Detour(shim="cuda_members:new_graph"),
        why="torch 2.8 and later have keep_graph=",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.capture_begin",
        Detour(shim="cuda_graphs:capture_begin"),
        when="probe cuda_graphs:watches_captures",
        why="the first capture starts the rotation of executables; graphs to be written need debug mode before",
        test=f"{_GRAPHS}::test_more_graphs_than_the_driver_allows",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.capture_end",
        Detour(shim="cuda_graphs:capture_end"),
        when="probe cuda_graphs:writes_graphs",
        why="TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH: every captured graph is written to a file",
        test=f"{_GRAPHS}::test_graphs_are_written",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph",
        Install("cuda_graphs:rotation"),
        when="probe cuda_graphs:rotates",
        why="the driver keeps about 2,048 executable graphs alive; models captured in pieces need more",
        test=f"{_GRAPHS}::test_more_graphs_than_the_driver_allows",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.register_generator_state",
        Install("cuda_members:register_generator_state"),
        why="no binding: says so",
        test=f"{_OTHER}::test_members_of_graphs_that_torch_musa_lacks",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.instantiate",
        Install("cuda_members:instantiate"),
        why="no binding: says so",
        test=f"{_OTHER}::test_members_of_graphs_that_torch_musa_lacks",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.raw_cuda_graph",
        Install("cuda_members:raw_cuda_graph"),
        why="no binding: says so",
        test=f"{_OTHER}::test_members_of_graphs_that_torch_musa_lacks",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.raw_cuda_graph_exec",
        Install("cuda_members:raw_cuda_graph_exec"),
        why="no binding: says so",
        test=f"{_OTHER}::test_members_of_graphs_that_torch_musa_lacks",
    ),
    Rule(
        "torch_musa.musa_graph.graphs:MUSAGraph.get_graph_data",
        Install("cuda_members:get_graph_data"),
        why="no binding: says so",
        test=f"{_OTHER}::test_members_of_graphs_that_torch_musa_lacks",
    ),
    Rule(
        "torch.cuda.graphs:graph",
        Wrap("cuda_other:graph"),
        why="torch_musa calls the first parameter musa_graph and lacks newer ones",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch.cuda.graphs:make_graphed_callables",
        Rehost(),
        why="torch_musa's has no pool=; torch's is Python over the graph names",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch.cuda.graphs:_CUDAGraph",
        Forward("torch_musa:_MUSAC._MUSAGraph"),
        why="class renamed by the backend",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch.cuda.graphs:_graph_pool_handle",
        Forward("torch_musa:_MUSAC."),
        why="the backend's binding of the same name",
        test=f"{_OTHER}::test_graph_names",
    ),
    Rule(
        "torch.cuda.graphs:_cuda_isCurrentStreamCapturing",
        Forward("torch_musa:_MUSAC._musa_isCurrentStreamCapturing"),
        why="binding renamed by the backend",
        test=f"{_OTHER}::test_graph_names",
    ),
    *each(
        "torch.cuda",
        "CUDAGraph graph make_graphed_callables",
        Forward("torch.cuda.graphs:"),
        why="one object under both names, as in torch",
        test=f"{_SURFACE}::test_one_object_under_both_names",
    ),
)

_NO_COLLECTIVES = Refuse(
    "torch_musa has no collectives within one process.", "torch.distributed, or torch.nn.parallel.comm."
)
NCCL = (
    Rule(
        "torch.cuda.nccl:is_available",
        Wrap("cuda_other:no_single_process_collectives"),
        why="False without a warning: torch.nn.parallel.comm then copies by itself",
        test=f"{_OTHER}::test_comm",
    ),
    *each(
        "torch.cuda.nccl",
        "all_reduce reduce broadcast all_gather reduce_scatter init_rank unique_id",
        _NO_COLLECTIVES,
        why="no binding",
        test=f"{_SURFACE}::test_refusals",
    ),
    *each(
        "torch.cuda.nccl",
        "SUM _check_sequence_type",
        Native(),
        why="numbers and plain Python",
        test=f"{_SURFACE}::test_native_rows_are_torch_objects",
    ),
    *each(
        "torch.cuda.comm",
        "broadcast broadcast_coalesced gather reduce_add reduce_add_coalesced scatter",
        Native(),
        why="torch.nn.parallel.comm, over bindings that are led to the backend's",
        test=f"{_OTHER}::test_comm",
    ),
)

COMM = (
    Rule(
        "torch.nn.parallel.comm:broadcast",
        Detour(shim="cuda_other:broadcast"),
        why="torch_musa binds no out= form",
        test=f"{_OTHER}::test_comm_into_given_tensors",
    ),
    Rule(
        "torch.nn.parallel.comm:scatter",
        Detour(shim="cuda_other:scatter"),
        why="torch_musa binds no out= form",
        test=f"{_OTHER}::test_comm_into_given_tensors",
    ),
    Rule(
        "torch.nn.parallel.comm:gather",
        Detour(shim="cuda_other:gather"),
        why="torch_musa binds no out= form",
        test=f"{_OTHER}::test_comm_into_given_tensors",
    ),
)

NVTX = (
    Rule(
        "torch.cuda.nvtx:_nvtx",
        Stub("cuda_nvtx:NVTX"),
        why="ranges of torch's profiler in place of NVTX",
        test=f"{_OTHER}::test_nvtx_ranges_show_in_the_profiler",
    ),
    *each(
        "torch.cuda.nvtx",
        "range range_push range_pop range_start range_end mark _device_range_start _device_range_end",
        Rehost(),
        why="torch's own Python over the binding",
        test=f"{_OTHER}::test_nvtx_ranges_show_in_the_profiler",
    ),
)

PROFILER = (
    *each(
        "torch.cuda.profiler",
        "check_error cudart",
        Forward("torch.cuda:"),
        why="one object under both names, as in torch",
        test=f"{_OTHER}::test_profiler",
    ),
    *each(
        "torch.cuda.profiler",
        "start stop profile",
        Rehost(),
        why="torch's own Python over cudart()",
        test=f"{_OTHER}::test_profiler",
    ),
    Rule(
        "torch.cuda.profiler:init",
        Refuse("the output modes of the old CUDA profiler do not exist on MUSA.", "torch.profiler."),
        why="gone since CUDA 12, and from torch 2.11",
        test=f"{_SURFACE}::test_refusals",
    ),
)

_PROFILES = "tests/cuda/test_profiler.py"
TORCH_PROFILER = (
    Rule(
        "torch.profiler.profiler:_KinetoProfile.__init__",
        Detour(shim="profiler:new_profile"),
        why="CUDA programs ask for ProfilerActivity.CUDA",
        test=f"{_PROFILES}::test_the_cuda_activity_shows_the_device",
    ),
    Rule(
        "torch.profiler.profiler:_KinetoProfile.toggle_collection_dynamic",
        Detour(shim="profiler:toggle"),
        why="CUDA programs ask for ProfilerActivity.CUDA",
        test=f"{_PROFILES}::test_collection_is_switched_by_the_cuda_activity",
    ),
    Rule(
        "torch.autograd.profiler:profile.__init__",
        Detour(shim="profiler:new_autograd_profile"),
        why="use_device='cuda' and use_cuda=True mean the device",
        test=f"{_PROFILES}::test_autograd_profiler",
    ),
    Rule(
        "torch.profiler.profiler:supported_activities",
        Detour(shim="profiler:supported_activities"),
        why="CUDA programs look for ProfilerActivity.CUDA in it",
        test=f"{_PROFILES}::test_supported_activities",
    ),
    Rule(
        "torch.autograd.profiler:profile._parse_kineto_results",
        Detour(shim="profiler:parse_results"),
        why="programs look for events whose device type is CUDA, and for calls of the runtime by CUDA's names",
        test=f"{_PROFILES}::test_events_are_those_of_a_cuda_device",
    ),
    Rule(
        "torch.profiler.profiler:_KinetoProfile.export_memory_timeline",
        Detour(shim="profiler:export_memory_timeline"),
        why="torch falls back to the CPU's memory where torch.cuda is not available",
        test=f"{_PROFILES}::test_memory",
    ),
    Rule(
        "torch.autograd.profiler:profile.export_chrome_trace",
        Detour(shim="profiler:export_trace"),
        why="tools look for the launches in the category cuda_runtime",
        test=f"{_PROFILES}::test_trace_of_a_schedule",
    ),
    Rule(
        "torch.autograd.profiler:emit_nvtx.__enter__",
        Detour(shim="profiler:enter_nvtx"),
        why="torch refuses it without CUDA; there is nothing to emit to",
        test=f"{_PROFILES}::test_emit_nvtx",
    ),
    Rule(
        "torch.autograd.profiler:emit_nvtx.__exit__",
        Detour(shim="profiler:exit_nvtx"),
        why="it ends a profiler that was not begun",
        test=f"{_PROFILES}::test_emit_nvtx",
    ),
)

_TUNABLE = f"{_OTHER}::test_tunable_keeps_settings"
_NO_TUNING = f"{_OTHER}::test_tunable_refuses_tuning"
TUNABLE = (
    Rule(
        "torch.cuda.tunable:enable", Wrap("cuda_tunable:enable"), why="False passes, True is refused", test=_NO_TUNING
    ),
    Rule(
        "torch.cuda.tunable:record_untuned_enable",
        Wrap("cuda_tunable:record_untuned_enable"),
        why="False passes, True is refused",
        test=_NO_TUNING,
    ),
    *each(
        "torch.cuda.tunable",
        "is_enabled record_untuned_is_enabled",
        Wrap("cuda_tunable:is_off"),
        why="there is no tuning",
        test=_NO_TUNING,
    ),
    *each(
        "torch.cuda.tunable",
        "tune_gemm_in_file mgpu_tune_gemm_in_file",
        Refuse(
            "GEMM tuning is a feature of cuBLASLt and hipBLASLt; muBLAS has none.",
            "nothing: muBLAS chooses its kernels itself.",
        ),
        why="no binding",
        test=f"{_SURFACE}::test_refusals",
    ),
    Rule("torch.cuda.tunable:tuning_enable", Wrap("cuda_tunable:tuning_enable"), why="kept", test=_TUNABLE),
    Rule("torch.cuda.tunable:tuning_is_enabled", Wrap("cuda_tunable:tuning_is_enabled"), why="kept", test=_TUNABLE),
    Rule(
        "torch.cuda.tunable:set_max_tuning_duration",
        Wrap("cuda_tunable:set_max_tuning_duration"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:get_max_tuning_duration",
        Wrap("cuda_tunable:get_max_tuning_duration"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:set_max_tuning_iterations",
        Wrap("cuda_tunable:set_max_tuning_iterations"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:get_max_tuning_iterations",
        Wrap("cuda_tunable:get_max_tuning_iterations"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule("torch.cuda.tunable:set_filename", Wrap("cuda_tunable:set_filename"), why="kept", test=_TUNABLE),
    Rule("torch.cuda.tunable:get_filename", Wrap("cuda_tunable:get_filename"), why="kept", test=_TUNABLE),
    Rule(
        "torch.cuda.tunable:set_rotating_buffer_size",
        Wrap("cuda_tunable:set_rotating_buffer_size"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:get_rotating_buffer_size",
        Wrap("cuda_tunable:get_rotating_buffer_size"),
        why="kept",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:get_results", Wrap("cuda_tunable:get_results"), why="no tuning, no results", test=_TUNABLE
    ),
    Rule(
        "torch.cuda.tunable:get_validators",
        Wrap("cuda_tunable:get_validators"),
        why="the version pair, as torch gives without a device",
        test=_TUNABLE,
    ),
    *each(
        "torch.cuda.tunable",
        "read_file write_file",
        Wrap("cuda_tunable:file_not_used"),
        why="nothing is read or written: False, torch's answer for that",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:write_file_on_exit",
        Noop("cuda_tunable:nothing_to_write"),
        why="there are no results to write",
        test=_TUNABLE,
    ),
    Rule(
        "torch.cuda.tunable:set_numerical_check_tolerances",
        Noop("cuda_tunable:set_numerical_check_tolerances"),
        why="no check runs, since nothing is tuned",
        test=_TUNABLE,
    ),
)

_NO_GDS = Refuse(
    "GPUDirect Storage (cuFile) has no MUSA counterpart.", "read into pinned host memory and copy from there."
)
_NO_GREEN = Refuse(
    "green contexts partition the multiprocessors of an NVIDIA card; torch_musa has nothing like it.",
    "streams with priorities.",
)
REFUSED = (
    *each(
        "torch.cuda.gds",
        "GdsFile gds_register_buffer gds_deregister_buffer",
        _NO_GDS,
        why="cuFile",
        test=f"{_SURFACE}::test_refusals",
    ),
    Rule("torch.cuda.green_contexts:GreenContext", _NO_GREEN, why="no binding", test=f"{_SURFACE}::test_refusals"),
    Rule(
        "torch.cuda:GreenContext",
        Forward("torch.cuda.green_contexts:"),
        why="one object under both names, as in torch",
        test=f"{_SURFACE}::test_one_object_under_both_names",
    ),
    Rule(
        "torch.cuda.green_contexts:SUPPORTED",
        Native(),
        why="False in a build without CUDA",
        test=f"{_SURFACE}::test_native_rows_are_torch_objects",
    ),
    Rule(
        "torch.cuda.jiterator:_JittedFunction",
        Wrap("cuda_other:jitted_function"),
        why="made functions refuse when they are called, as torch's do without CUDA",
        test=f"{_OTHER}::test_jiterator",
    ),
    *each(
        "torch.cuda.jiterator",
        "_create_jit_fn _create_multi_output_jit_fn",
        Rehost(),
        why="programs make such functions when they are imported; only the call is refused",
        test=f"{_OTHER}::test_jiterator",
    ),
)

RULES = (*RANDOM, *AMP, *GRAPHS, *NCCL, *COMM, *NVTX, *PROFILER, *TORCH_PROFILER, *TUNABLE, *REFUSED)
