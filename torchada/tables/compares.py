"""Places in torch's own Python that compare a device's type with "cuda", or ask whether CUDA is available."""

from ..rules import Detour, Rule, Stub, each

_TEST = "tests/devices/test_compares.py"
_COMPARES = Detour(compares=True)

COMPILER = (
    Rule(
        "torch._dynamo.convert_frame:trace_frame",
        Detour(shim="dynamo:keep_random_state"),
        why="torch restores the random state of CUDA alone after it has compiled: a backend that draws on the device "
        "would change what the program draws",
        test=f"{_TEST}::test_compiling_draws_no_random_numbers",
    ),
    Rule(
        "torch._dynamo.convert_frame:_compile",
        Detour(shim="dynamo:keep_random_state"),
        when="probe dynamo:traces_inside",
        why="as trace_frame, which is a part of it in an older torch",
        test=f"{_TEST}::test_compiling_draws_no_random_numbers",
    ),
    Rule(
        "torch._dynamo.symbolic_convert:InstructionTranslatorBase._maybe_emit_sync_dealloc",
        _COMPARES,
        why="memory of a stream that another stream used last was given back without waiting for that one",
        test=f"{_TEST}::test_memory_waits_for_the_stream_that_used_it",
    ),
    Rule(
        "torch._dynamo.compiled_autograd:AutogradCompilerInstance.move_graph_nodes_to_cuda",
        _COMPARES,
        why="numbers of the backward pass stay on the CPU, and cut its graph in pieces",
        test=f"{_TEST}::test_scalars_of_compiled_autograd",
    ),
    Rule(
        "torch._dynamo.package:SystemInfo.CHECK_GPUS",
        Stub("dynamo:CHECKED_GPUS"),
        why="code compiled ahead for one model of card was loaded on any other",
        test=f"{_TEST}::test_compiled_code_names_its_device",
    ),
    Rule(
        "torch._inductor.compile_fx:get_cuda_device_context",
        Detour(shim="inductor:device_context"),
        why="while inductor compiles, the device of the graph is the current one",
        test=f"{_TEST}::test_the_device_of_the_graph_is_current",
    ),
    Rule(
        "torch._inductor.utils:get_gpu_type.__wrapped__",
        Detour(shim="inductor:gpu_type"),
        when="env:TORCHADA_FORCE_CUDA_AVAILABLE",
        why="two kinds of GPU are available then, and inductor refuses to compile",
        test="tests/cuda/test_policy.py::test_forced_availability_is_coherent",
    ),
    Rule(
        "torch._inductor.utils:get_gpu_dram_gbps.__wrapped__",
        Detour(shim="inductor:memory_bandwidth"),
        why="torch takes Triton for granted where it weighs streams against each other; on MUSA it may be missing",
        test=f"{_TEST}::test_streams_in_compiled_training",
    ),
    *each(
        "torch._inductor.output_code",
        "cudagraph_post_compile CompiledFxGraph.__init__ CompiledFxGraph.post_compile",
        _COMPARES,
        why="on CUDA a function that is not captured is told in a warning",
        test=f"{_TEST}::test_a_function_that_is_not_captured_is_told",
    ),
)

OTHERS = (
    Rule(
        "torch._higher_order_ops.associative_scan:associative_scan",
        _COMPARES,
        why='combine_mode="pointwise", its default, is for CUDA only',
        test=f"{_TEST}::test_associative_scan",
    ),
    Rule(
        "torch.fx.passes.backends.cudagraphs:CudaGraphsSupport.is_node_supported",
        _COMPARES,
        why="no operator of the device was taken for one that a graph can hold",
        test=f"{_TEST}::test_partitions_for_graphs",
    ),
    Rule(
        "torch.utils.viz._cycles:is_cuda_tensor",
        _COMPARES,
        why="cycles that keep memory of the device were not reported",
        test=f"{_TEST}::test_cycles",
    ),
    Rule(
        "torch.nn.modules.linear_cross_entropy_options:LinearCrossEntropyOptions._resolve_auto_acc_dtype",
        Detour(shim="ops:accumulate_in"),
        why="half precision is summed in float32 on CUDA and on the CPU, and was in half precision here",
        test=f"{_TEST}::test_linear_cross_entropy",
    ),
    Rule(
        "torch.optim.optimizer:Optimizer._accelerator_graph_capture_health_check",
        Detour(shim="optim:check_capture"),
        why="a step captured without capturable=True replays its first step for ever; torch refuses it on CUDA alone",
        test=f"{_TEST}::test_optimizers_in_graphs",
    ),
    Rule(
        "torch.optim.optimizer:Optimizer._cuda_graph_capture_health_check",
        Detour(shim="optim:check_capture"),
        when="not has:torch.optim.Optimizer._accelerator_graph_capture_health_check",
        why="its name before torch 2.12",
        test=f"{_TEST}::test_optimizers_in_graphs",
    ),
)

RULES = (*COMPILER, *OTHERS)
