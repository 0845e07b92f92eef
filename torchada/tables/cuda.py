"""torch.cuda itself: the names that are not simply torch_musa's of the same name.

Names without a row here are answered by torch_musa's object of the same name.
"""

from ..rules import Compute, Detour, Forward, Install, Native, Refuse, Rehost, Rule, Stub, Wrap, each
from . import cuda_memory, cuda_modules

_POLICY = "tests/cuda/test_policy.py"
_DEVICE = "tests/cuda/test_device.py"
_STREAMS = "tests/cuda/test_streams.py"
_SURFACE = "tests/cuda/test_surface.py"
_UNFORCED = "not env:TORCHADA_FORCE_CUDA_AVAILABLE"
_FORCED = "env:TORCHADA_FORCE_CUDA_AVAILABLE"

AVAILABILITY = (
    Rule(
        "torch.cuda:is_available",
        Native(),
        when=_UNFORCED,
        why="programs tell NVIDIA from MUSA by it",
        test=f"{_POLICY}::test_is_available_stays_native",
    ),
    Rule(
        "torch.cuda:_is_compiled",
        Stub("cuda_device:_is_compiled"),
        when=_FORCED,
        why="availability is a contract: the whole group answers True",
        test=f"{_POLICY}::test_forced_availability_is_coherent",
    ),
    Rule(
        "torch.cuda:_is_compiled",
        Native(),
        when=_UNFORCED,
        why="belongs to is_available",
        test=f"{_POLICY}::test_is_available_stays_native",
    ),
    Rule(
        "torch.cuda:_device_count_nvml",
        Forward("device_count"),
        why="programs count devices by it before they fork; torch_musa's count initialises nothing",
        test=f"{_DEVICE}::test_device_count",
    ),
    Rule(
        "torch_musa._MUSAC:_musa_getDeviceCount",
        Install("visible:follow_until_first_use"),
        why="CUDA reads CUDA_VISIBLE_DEVICES at the first use of a device, so programs write it after the import",
        test=f"{_POLICY}::test_visible_devices_chosen_late",
    ),
    Rule(
        "torch.backends.cuda:is_built",
        Detour(shim="cuda_device:answer_true"),
        when=_FORCED,
        why="availability is a contract: the whole group answers True",
        test=f"{_POLICY}::test_forced_availability_is_coherent",
    ),
    *each(
        "torch.cuda",
        "_nvml_based_avail _parse_visible_devices _raw_device_count_nvml _raw_device_uuid_nvml "
        "_transform_uuid_to_ordinals",
        Native(),
        why="plain Python over environment variables that torchada keeps equal to MUSA's",
        test=f"{_POLICY}::test_visible_devices",
    ),
)

DEVICES = (
    Rule(
        "torch_musa.core._utils:_get_musa_device_index",
        Detour(keywords=("device",), positions=(0,)),
        when="late",
        why="a torch.device of type cuda made before activation; every function of torch_musa asks here",
        test=f"{_DEVICE}::test_devices_made_before_activation",
    ),
    Rule(
        "torch.cuda:_get_device_index",
        Forward("torch.cuda._utils:"),
        why="one object under both names, as in torch",
        test=f"{_DEVICE}::test_get_device_index",
    ),
    Rule(
        "torch.cuda._utils:_get_device_index",
        Forward("_get_musa_device_index"),
        why="torch's own takes only devices of type cuda",
        test=f"{_DEVICE}::test_get_device_index",
    ),
    Rule(
        "torch.cuda:get_device_properties",
        Wrap("cuda_device:get_device_properties"),
        why="torch_musa binds 7 fields and wants the device argument",
        test=f"{_DEVICE}::test_properties",
    ),
    Rule(
        "torch.cuda:_CudaDeviceProperties",
        Stub("cuda_device:CudaDeviceProperties"),
        why="the class of what get_device_properties returns",
        test=f"{_DEVICE}::test_properties",
    ),
    Rule(
        "torch.cuda:get_arch_list",
        Wrap("cuda_device:get_arch_list"),
        why="torch_musa gives bare numbers; CUDA programs split kind_number",
        test=f"{_DEVICE}::test_arch_list_and_flags",
    ),
    Rule(
        "torch.cuda:get_gencode_flags",
        Wrap("cuda_device:get_gencode_flags"),
        why="the MUSA compiler knows no -gencode; these are its own flags",
        test=f"{_DEVICE}::test_arch_list_and_flags",
    ),
    Rule(
        "torch.cuda:_get_device",
        Native(),
        why="plain Python over torch.device, which is translated",
        test=f"{_DEVICE}::test_generators_by_device",
    ),
    *each(
        "torch.cuda",
        "_get_generator _get_rng_state_offset _set_rng_state_offset",
        Rehost(),
        why="plain Python over the devices' generators",
        test=f"{_DEVICE}::test_generators_by_device",
    ),
    Rule(
        "torch.cuda:_get_nvml_device_index",
        Rehost(),
        why="plain Python over the device index and the visible devices",
        test=f"{_DEVICE}::test_nvml_device_index",
    ),
    Rule(
        "torch.cuda:device_memory_used",
        Wrap("cuda_device:device_memory_used"),
        why="total minus free memory, without a management library",
        test=f"{_DEVICE}::test_device_memory_used",
    ),
    *each(
        "torch.cuda",
        "clock_rate memory_usage power_draw temperature utilization _get_pynvml_handler",
        Rehost(),
        why="torch's own Python over the module pynvml, which Moore Threads' library answers where it is installed; "
        "the error torch gives without pynvml where it is not",
        test="tests/native/test_telemetry.py::test_telemetry",
    ),
    *each(
        "torch.cuda",
        "_HAS_PYNVML _PYNVML_ERR",
        Native(),
        why="what torch found at its import; replaced by the row of pynvml where that came too late",
        test="tests/native/test_telemetry.py::test_torch_imported_first",
    ),
    Rule(
        "torch.cuda:pynvml",
        Install("telemetry:install"),
        why="torch looks for pynvml once, when it is imported",
        test="tests/native/test_telemetry.py::test_torch_imported_first",
    ),
    *each(
        "torch.cuda",
        "_check_capability _check_cubins _warn_unsupported_code _code_compatible_with_device _extract_arch_version "
        "_CompatInterval _CompatSet DEVICE_REQUIREMENT PYTORCH_RELEASES_CODE_CC _host_arch_key "
        "_register_triton_kernels",
        Native(),
        why="compare with NVIDIA's architectures; nothing calls them on MUSA",
        test=f"{_SURFACE}::test_native_rows_are_torch_objects",
    ),
)

STATE = (
    Rule(
        "torch.cuda:_initialized",
        Compute("cuda_device:initialized"),
        why="torch_musa's own copy is made at import and stays False",
        test=f"{_DEVICE}::test_initialisation_state",
    ),
    Rule(
        "torch.cuda:default_generators",
        Compute("cuda_device:default_generators"),
        why="does not exist in torch_musa before initialisation; torch has an empty tuple",
        test=f"{_DEVICE}::test_initialisation_state",
    ),
    *each(
        "torch.cuda",
        "has_half has_magma",
        Native(),
        why="constants of the build; torch_musa's has_half does not exist before initialisation",
        test=f"{_DEVICE}::test_initialisation_state",
    ),
    Rule(
        "torch.cuda:init",
        Forward("core._lazy_init.init"),
        why="at another place in torch_musa",
        test=f"{_DEVICE}::test_initialisation_state",
    ),
    Rule(
        "torch_musa.core._lazy_init:_lazy_init",
        Install("multiprocessing:forked_children"),
        why="in a child that was forked after initialisation programs look for CUDA's words in the error",
        test="tests/distributed/test_launch.py::test_start_methods",
    ),
    *each(
        "torch.cuda",
        "_initialization_lock _lazy_seed_tracker _queued_calls _tls",
        Forward("torch_musa.core._lazy_init:"),
        why="the state of torch_musa's lazy initialisation, at another place there",
        test=f"{_DEVICE}::test_lazy_initialisation_internals",
    ),
    Rule(
        "torch.cuda:DeferredCudaCallError",
        Forward("core._lazy_init.DeferredMusaCallError"),
        why="class renamed by the backend",
        test=f"{_DEVICE}::test_error_classes",
    ),
    Rule(
        "torch.cuda:CudaError",
        Forward("MusaError"),
        why="class renamed by the backend",
        test=f"{_DEVICE}::test_error_classes",
    ),
    *each(
        "torch.cuda",
        "OutOfMemoryError AcceleratorError",
        Native(),
        why="classes of torch itself, and what every backend raises",
        test=f"{_DEVICE}::test_error_classes",
    ),
    Rule(
        "torch.cuda:cudaStatus",
        Native(),
        why="numbers only",
        test=f"{_DEVICE}::test_error_classes",
    ),
    Rule(
        "torch.cuda:cudart",
        Wrap("cuda_runtime:cudart"),
        why="CUDA's function names on the MUSA runtime binding",
        test=f"{_DEVICE}::test_cudart",
    ),
    Rule(
        "torch.cuda:_cudart",
        Stub("cuda_runtime:RUNTIME"),
        why="what cudart() returns",
        test=f"{_DEVICE}::test_cudart",
    ),
    Rule(
        "torch.cuda:current_solver_handle",
        Refuse("torch_musa binds no solver handle.", "torch.linalg, which needs none."),
        why="no binding",
        test=f"{_SURFACE}::test_refusals",
    ),
    Rule(
        "torch.cuda:set_sync_debug_mode",
        Wrap("cuda_device:set_sync_debug_mode"),
        why="no check of synchronizing operations in torch_musa: kept, and said",
        test=f"{_DEVICE}::test_sync_debug_mode",
    ),
    Rule(
        "torch.cuda:get_sync_debug_mode",
        Wrap("cuda_device:get_sync_debug_mode"),
        why="answers what was set",
        test=f"{_DEVICE}::test_sync_debug_mode",
    ),
    Rule(
        "torch.cuda:_compile_kernel",
        Refuse(
            "it compiles CUDA C++ with NVRTC, which has no MUSA counterpart in torch_musa.",
            "a MUSA extension (torch_musa.utils.musa_extension), or Triton.",
        ),
        why="NVRTC",
        test=f"{_SURFACE}::test_refusals",
    ),
)

STREAMS = (
    Rule(
        "torch_musa.core.stream:Stream.cuda_stream",
        Install("cuda_members:cuda_stream"),
        why="torch_musa calls the handle musa_stream; the class and its objects stay torch_musa's",
        test=f"{_STREAMS}::test_handles",
    ),
    Rule(
        "torch_musa.core.stream:Stream.__cuda_stream__",
        Install("cuda_members:cuda_stream_protocol"),
        why="the stream protocol of torch 2.13",
        test=f"{_STREAMS}::test_handles",
    ),
    Rule(
        "torch_musa.core.stream:Event.cuda_event",
        Install("cuda_members:cuda_event"),
        why="torch_musa calls the handle musa_event; the class and its objects stay torch_musa's",
        test=f"{_STREAMS}::test_handles",
    ),
    Rule(
        "torch_musa.core.stream:Event.__new__",
        Detour(shim="cuda_members:new_event"),
        why="torch 2.9 and later pass external=",
        test=f"{_STREAMS}::test_event_constructors",
    ),
    Rule(
        "torch_musa.core.stream:Event.from_ipc_handle",
        Detour(keywords=("device",), positions=(0,)),
        why="the device may be given by name",
        test=f"{_STREAMS}::test_handles_for_other_processes",
    ),
    Rule(
        "torch.cuda:get_stream_from_external",
        Wrap("cuda_other:get_stream_from_external"),
        why="no binding of this name; an ExternalStream is the same thing",
        test=f"{_STREAMS}::test_external_streams",
    ),
)

_TYPES = "tests/cuda/test_types.py"
TYPES = (
    *each(
        "torch.cuda",
        "BFloat16Tensor BoolTensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor "
        "ShortTensor",
        Native(),
        why="the classes torch's C++ made stay; rows of torch let them make and know MUSA tensors",
        test=f"{_TYPES}::test_legacy_tensor_types",
    ),
    *each(
        "torch.cuda",
        "ComplexDoubleStorage ComplexFloatStorage",
        Native(),
        why="torch_musa lacks these two; torch's own take the device from their module's name, which is translated",
        test=f"{_TYPES}::test_legacy_storages",
    ),
    *each(
        "torch.cuda.sparse",
        "BFloat16Tensor ByteTensor CharTensor DoubleTensor FloatTensor HalfTensor IntTensor LongTensor ShortTensor",
        Native(),
        why="the classes torch's C++ made stay",
        test=f"{_TYPES}::test_classes_stay_torchs_own",
    ),
    Rule(
        "torch.cuda:_CudaBase",
        Forward("core._lazy_init._MusaBase"),
        why="class renamed by the backend",
        test=f"{_TYPES}::test_private_bases",
    ),
    Rule(
        "torch.cuda:error",
        Native(),
        why="an empty module of torch 2.7 to 2.9",
        test=f"{_SURFACE}::test_every_public_name_of_a_released_torch_is_decided",
    ),
    *each(
        "torch.cuda",
        "_LazySeedTracker _dummy_type classproperty",
        Native(),
        why="helpers of torch itself",
        test=f"{_SURFACE}::test_native_rows_are_torch_objects",
    ),
)

RULES = (
    *AVAILABILITY,
    *DEVICES,
    *STATE,
    *STREAMS,
    *TYPES,
    *cuda_memory.RULES,
    *cuda_modules.RULES,
)
