"""Places elsewhere in torch that take a device or say "cuda": device values.

tests/devices/decided.py holds the reviewed list of callables that need no row.
"""

from ..rules import Detour, Install, Rule, Stub, Wrap, each

_DEVICE = Detour(keywords=("device",))
_FIRST = Detour(keywords=("device",), positions=(0,))
_DEVICE_TYPE = Detour(keywords=("device_type",))
_FIRST_TYPE = Detour(keywords=("device_type",), positions=(0,))

_WHY = "a cuda device means the MUSA device"
_REPLACED = "torch_musa's own function over torch's method compares the device with its name"
_PORTABLE = "tests/devices/test_checkpoints.py::test_objects_that_name_the_device"
_SCRIPT = "tests/devices/test_script.py::test_texts_at_run_time"
_LEGACY = "legacy tensor types are names of CUDA programs"

DEVICE = (
    Rule(
        "torch:device",
        Install("device:configure"),
        why="tells the detours which values are CUDA devices and what they become",
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch:device.__new__",
        Detour(keywords=("device", "type"), positions=(0,), cache="device:spellings"),
        why='torch.device("cuda") is the MUSA device; the type stays torch.device',
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch:device.__reduce__",
        Detour(shim="device:reduce_device"),
        why="a pickled device loads on a CUDA machine as well",
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch:get_device_module",
        Install("device:get_device_module"),
        why='asked for "cuda" the answer is torch.cuda',
        test="tests/devices/test_device.py",
    ),
    Rule(
        "torch.accelerator._utils:_get_device_index",
        _DEVICE,
        why="devices made before activation are still of type cuda",
        test="tests/devices/test_late.py",
    ),
    Rule(
        "torch.library:Library",
        Install("net:install"),
        why="C++ callers, TorchScript constants and operators called with a device made before activation",
        test="tests/devices/test_net.py",
    ),
)

FACTORIES = (
    *each(
        "torch",
        """arange asarray as_tensor bartlett_window blackman_window empty empty_like empty_permuted empty_quantized
        empty_strided eye from_file full full_like hamming_window hann_window kaiser_window linspace logspace
        normal ones ones_like rand rand_like randint randint_like randn randn_like randperm range scalar_tensor
        sparse_bsc_tensor
        sparse_bsr_tensor sparse_compressed_tensor sparse_coo_tensor sparse_csc_tensor sparse_csr_tensor tensor
        tril_indices triu_indices zeros zeros_like _assert_tensor_metadata _cudnn_init_dropout_state
        _efficientzerotensor _empty_affine_quantized _empty_per_channel_affine_quantized _make_dep_token
        _C._fft.fft_fftfreq _C._fft.fft_rfftfreq _C._nested.nested_tensor""",
        Detour(keywords=("device",), to_device=True),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    *each(
        "torch",
        "_C.TensorBase._make_wrapper_subclass",
        Detour(keywords=("device",), positions=(7,)),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    *each(
        "torch",
        "_C.TensorBase._make_subclass",
        Detour(keywords=("device_for_backend_keys",), positions=(5,)),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    Rule(
        "torch:_pin_memory",
        Detour(keywords=("device",), positions=(1,)),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    Rule(
        "torch:_resize_output_",
        Detour(keywords=("device",), positions=(2,)),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    Rule(
        "torch:_nested_tensor_from_tensor_list",
        Detour(keywords=("device",), positions=(3,)),
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    *each(
        "torch",
        "Generator.__new__ Stream.__new__ Event.__new__ Event.from_ipc_handle _C._nn._parse_to",
        _FIRST,
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    Rule("torch:_C.StorageBase.__new__", _DEVICE, why=_WHY, test="tests/devices/test_storage.py"),
    Rule(
        "torch:_C._construct_storage_from_data_pointer",
        Detour(keywords=("device",), positions=(1,)),
        why=_WHY,
        test="tests/devices/test_late.py",
    ),
)

TENSOR = (
    *each(
        "torch",
        """_C.TensorBase.new _C.TensorBase.new_empty _C.TensorBase.new_empty_strided _C.TensorBase.new_full
        _C.TensorBase.new_ones _C.TensorBase.new_tensor _C.TensorBase.new_zeros""",
        _DEVICE,
        why=_WHY,
        test="tests/devices/test_entry_points.py",
    ),
    *each(
        "torch",
        "_C.TensorBase.to _C.TensorBase.pin_memory _C.TensorBase.is_pinned",
        _FIRST,
        why=_WHY,
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:Tensor.to",
        _FIRST,
        when="probe tensor:to_compares_devices",
        why=_REPLACED,
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:Tensor.pin_memory",
        _FIRST,
        when="probe tensor:pin_memory_compares_devices",
        why=_REPLACED,
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:Tensor.is_pinned",
        _FIRST,
        when="probe tensor:is_pinned_compares_devices",
        why=_REPLACED,
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch.nn.parameter:UninitializedTensorMixin._allowed_methods",
        Install("tensor:allow_lazy_modules"),
        why="to() of a lazy module fails: its parameters do not know torch_musa's function over torch's method",
        test="tests/devices/test_tensor.py::test_lazy_modules_move",
    ),
    Rule(
        "torch:_C.TensorBase.cuda",
        Detour(keywords=("device",), positions=(0,), shim="tensor:cuda"),
        why="the C++ method insists on a CUDA device",
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:_C.TensorBase.is_cuda",
        Detour(getter="device"),
        why="the tensor is on the accelerator the program calls cuda",
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch._dynamo.variables.tensor:TensorVariable.method_attr_is_cuda",
        Detour(compares=True),
        why="compiled code takes the same branch as eager code",
        test="tests/devices/test_identity.py",
    ),
    Rule(
        "torch._dynamo.variables.tensor:TensorVariable.method_type",
        Detour(shim="tensor:traced_type"),
        why="compiled code takes the same branch as eager code",
        test="tests/devices/test_identity.py",
    ),
    Rule(
        "torch._dynamo.variables.ctx_manager:register_device_context_manager",
        Detour(shim="dynamo:register_device_context"),
        why="torch.cuda.device and torch.musa.device are one class; torch_musa registers what traces it",
        test="tests/devices/test_identity.py::test_compiled_device_context",
    ),
    Rule(
        "torch:Tensor.__dlpack_device__",
        Detour(shim="tensor:dlpack_device"),
        why="torch knows a renamed backend's memory by its old name only, so torch.from_dlpack(tensor) fails",
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:Tensor.__cuda_array_interface__",
        Detour(shim="tensor:cuda_array_interface"),
        why="MUSA memory must not be taken for CUDA memory",
        test="tests/devices/test_tensor.py",
    ),
    Rule(
        "torch:_C.TensorBase.type", Detour(shim="tensor:tensor_type"), why=_LEGACY, test="tests/devices/test_tensor.py"
    ),
    Rule(
        "torch:FloatTensor.__class__.__instancecheck__",
        Detour(shim="tensor:legacy_instance"),
        why=_LEGACY,
        test="tests/devices/test_tensor.py",
    ),
    Rule("torch:_tensor_classes", Install("tensor:legacy_types"), why=_LEGACY, test="tests/devices/test_tensor.py"),
    Rule(
        "torch:set_default_tensor_type",
        Install("tensor:default_tensor_type"),
        why=_LEGACY,
        test="tests/devices/test_tensor.py",
    ),
)

STORAGE = (
    *each(
        "torch",
        "UntypedStorage.is_cuda TypedStorage.is_cuda",
        Detour(shim="storage:is_cuda"),
        why="the memory is on the accelerator the program calls cuda",
        test="tests/devices/test_storage.py",
    ),
    Rule(
        "torch.serialization:register_package",
        Install("serialization:install"),
        why="checkpoints carry CUDA locations in both directions; torch_musa refuses them",
        test="tests/devices/test_checkpoints.py",
    ),
    Rule(
        "torch:Tensor._reduce_ex_internal",
        Detour(shim="serialization:reduce_tensor"),
        why="sparse tensors are written in the form every machine can read",
        test="tests/devices/test_checkpoints.py",
    ),
    *each(
        "torch",
        "_validate_sparse_coo_tensor_args _validate_sparse_compressed_tensor_args _validate_sparse_csr_tensor_args "
        "_validate_sparse_csc_tensor_args _validate_sparse_bsr_tensor_args _validate_sparse_bsc_tensor_args",
        Detour(shim="sparse:validate"),
        why="a sparse tensor is checked when it is read from a file; the check has kernels of the CPU and CUDA, and an "
        "older torch refuses other devices by name",
        test="tests/devices/test_checkpoints.py::test_parts_of_sparse_tensors_are_checked",
    ),
    Rule(
        "torch.amp.grad_scaler:GradScaler.__getstate__",
        Detour(shim="serialization:portable_state"),
        why="the device type is part of the pickle",
        test=_PORTABLE,
    ),
    Rule(
        "torch.amp.grad_scaler:GradScaler.__setstate__",
        Detour(shim="serialization:restored_state"),
        why="the device type is part of the pickle",
        test=_PORTABLE,
    ),
    Rule(
        "torch.amp.autocast_mode:autocast",
        Install("serialization:autocast_state"),
        why="of another backend than CUDA it keeps the module, and a model that keeps one could not be copied or saved",
        test="tests/devices/test_checkpoints.py::test_autocast_contexts_are_copied_and_pickled",
    ),
    Rule(
        "torch.distributed.device_mesh:DeviceMesh.__getstate__",
        Detour(shim="serialization:portable_state"),
        why="the device type is part of the pickle, and of every DTensor's",
        test=_PORTABLE,
    ),
    Rule(
        "torch.distributed.device_mesh:DeviceMesh.__setstate__",
        Detour(shim="serialization:restored_state"),
        why="the device type is part of the pickle, and of every DTensor's",
        test=_PORTABLE,
    ),
    Rule(
        "torch.fx.graph_module:GraphModule.__reduce__",
        Detour(shim="serialization:reduce_graph_module"),
        why="a pickled GraphModule is Python code that names devices",
        test=_PORTABLE,
    ),
    Rule(
        "torch._export.serde.schema:Device.__init__",
        Detour(shim="serialization:exported_device"),
        why="an exported program names the device of every tensor",
        test=_PORTABLE,
    ),
    Rule(
        "torch._export.serde.serialize:GraphModuleSerializer.serialize_hoo_inputs",
        Detour(shim="serialization:exported_region"),
        why="the autocast regions of an exported program name their device type",
        test="tests/compile/test_export.py::test_the_file_names_cuda_and_is_read",
    ),
    Rule(
        "torch.export.passes:move_to_device_pass",
        Detour(shim="serialization:move_program"),
        why="the devices to move from are compared as text",
        test="tests/compile/test_export.py",
    ),
    Rule(
        "torch:TypedStorage.type",
        Detour(shim="storage:typed_type"),
        why=_LEGACY,
        test="tests/devices/test_storage.py",
    ),
    Rule(
        "torch.serialization:validate_cuda_device",
        Detour(shim="serialization:validate_cuda_device"),
        why="a CUDA location is a MUSA device",
        test="tests/devices/test_checkpoints.py",
    ),
)

AMP = (
    *each(
        "torch",
        "_C.get_autocast_dtype _C.set_autocast_dtype _C._is_autocast_available",
        _FIRST_TYPE,
        why=_WHY,
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:_C.is_autocast_enabled",
        Detour(keywords=("device_type",), positions=(0,), shim="amp_generic:is_autocast_enabled"),
        why="without a device type it means CUDA",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:_C.set_autocast_enabled",
        Detour(keywords=("device_type",), positions=(0,), shim="amp_generic:set_autocast_enabled"),
        why="without a device type it means CUDA",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:is_autocast_enabled",
        Wrap("amp_generic:native_is_autocast_enabled"),
        why="torch_musa replaces it for the sake of calls without a device type; Dynamo knows only torch's own",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:set_autocast_enabled",
        Wrap("amp_generic:native_set_autocast_enabled"),
        why="as is_autocast_enabled",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:_C.get_autocast_gpu_dtype",
        Detour(shim="amp_generic:get_autocast_gpu_dtype"),
        why="it means CUDA",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch:_C.set_autocast_gpu_dtype",
        Detour(shim="amp_generic:set_autocast_gpu_dtype"),
        why="it means CUDA",
        test="tests/devices/test_amp.py",
    ),
    *each(
        "torch.amp.autocast_mode",
        "autocast.__init__ custom_fwd custom_bwd",
        _DEVICE_TYPE,
        why="they compare the device type with that of tensors",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch.amp.grad_scaler:GradScaler.__init__",
        _DEVICE,
        why="it switches itself off for cuda where torch.cuda is not available",
        test="tests/devices/test_amp.py",
    ),
    Rule(
        "torch.random:fork_rng",
        Detour(shim="device:fork_rng"),
        why="it asks the module of the device type, and torch.export and AOT autograd intercept that of CUDA alone",
        test="tests/devices/test_entry_points.py",
    ),
    Rule(
        "torch.utils.checkpoint:_get_device_module",
        Detour(shim="device:checkpoint_device_module"),
        why="it keeps random states only of a device module with _initialized, which torch_musa leaves False for ever: "
        "dropout would differ in the recomputation, and the gradients with it",
        test="tests/devices/test_entry_points.py",
    ),
    Rule(
        "torch.autograd.graph:save_on_cpu.__init__",
        _DEVICE_TYPE,
        why="its default is cuda, and it asks that module whether it may pin memory",
        test="tests/devices/test_entry_points.py",
    ),
)

ERRORS = (
    Rule(
        "torch:OutOfMemoryError",
        Install("device:out_of_memory"),
        why="programs that retry with less look for CUDA's words in the text",
        test="tests/devices/test_device.py",
    ),
)

ATTENTION = (
    Rule(
        "torch.nn.attention.flex_attention:_validate_device",
        Detour(shim="attention:validate_device"),
        why="a list of device types that does not name the MUSA device",
        test="tests/devices/test_attention.py",
    ),
)

COMPILER = (
    Rule(
        "torch._dynamo.trace_rules:is_torch_inline_allowed",
        Install("dynamo:own_files"),
        why="functions of ours that torch calls from compiled code were compiled too, each by itself",
        test="tests/compile/test_counts.py::test_program",
    ),
    Rule(
        "torch.jit.frontend:ExprBuilder.build_Call",
        Detour(shim="script:build_call"),
        why="TorchScript knows x.cuda() without arguments only",
        test="tests/devices/test_script.py",
    ),
    Rule(
        "torch:_C._jit_script_compile",
        Detour(shim="script_graphs:compile_function"),
        why="compiled code makes its devices in C++, past every other translation",
        test=_SCRIPT,
    ),
    Rule(
        "torch:_C._jit_script_class_compile",
        Detour(shim="script_graphs:compile_class"),
        why="as above, for scripted classes",
        test=_SCRIPT,
    ),
    Rule(
        "torch.jit._recursive:create_methods_and_properties_from_stubs",
        Detour(shim="script_graphs:compile_methods"),
        why="as above, for modules",
        test=_SCRIPT,
    ),
    Rule(
        "torch.jit._recursive:create_hooks_from_stubs",
        Detour(shim="script_graphs:compile_hooks"),
        why="as above, for the hooks of modules",
        test=_SCRIPT,
    ),
    *each(
        "torch",
        "_C.import_ir_module _C.import_ir_module_from_buffer",
        Detour(shim="script_archives:import_archive"),
        why="the code in a TorchScript archive of a CUDA machine names devices, in traces most of all",
        test="tests/devices/test_script.py::test_archives_written_on_cuda",
    ),
    *each(
        "torch",
        "_C.ScriptModule.save _C.ScriptFunction.save",
        Detour(shim="script_archives:save"),
        why="what is written here loads on CUDA and CPU machines, as with torch.save",
        test="tests/devices/test_script.py::test_archives_are_portable",
    ),
    *each(
        "torch",
        "_C.ScriptModule.save_to_buffer _C.ScriptFunction.save_to_buffer",
        Detour(shim="script_archives:save_to_buffer"),
        why="as above",
        test="tests/devices/test_script.py::test_archives_are_portable",
    ),
    Rule(
        "torch._inductor.autotune_process:CUDA_VISIBLE_DEVICES",
        Stub("attention:VISIBLE_DEVICES"),
        why="each process that tries kernels gets one device by this variable; MUSA reads its own",
        test="tests/devices/test_attention.py",
    ),
)

RULES = (*DEVICE, *FACTORIES, *TENSOR, *STORAGE, *AMP, *ERRORS, *ATTENTION, *COMPILER)
