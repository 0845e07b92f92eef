"""Custom operators: registrations that name CUDA."""

from ..rules import Detour, Install, Rule, each

_TEST = "tests/devices/test_custom_ops.py"
_HIGHER = "tests/devices/test_higher_order.py"
_FIRST_TYPE = Detour(keywords=("device_type",), positions=(0,))

RULES = (
    Rule(
        "torch:_C._dispatch_key_for_device",
        _FIRST_TYPE,
        why='operators registered for device type "cuda" are kernels of the MUSA device',
        test=f"{_TEST}::test_dispatch_key",
    ),
    Rule(
        "torch:_C._dispatch_library",
        Detour(shim="library:dispatch_library"),
        why="a library made for dispatch key CUDA holds kernels of the MUSA device",
        test=f"{_TEST}::test_libraries_made_for_a_dispatch_key",
    ),
    Rule(
        "torch.library:Library.impl",
        Detour(shim="library:impl"),
        why="a kernel registered for dispatch key CUDA would never run, and the CPU's might instead",
        test=f"{_TEST}::test_every_key_of_cuda",
    ),
    Rule(
        "torch.library:Library.fallback",
        Detour(shim="library:fallback"),
        why="as impl",
        test=f"{_TEST}::test_fallback_of_a_key",
    ),
    Rule(
        "torch.library:get_kernel",
        Detour(shim="library:get_kernel"),
        why="the kernel of CUDA is asked for to be called and replaced",
        test=f"{_TEST}::test_a_kernel_is_handed_out_and_replaced",
    ),
    Rule(
        "torch._library.custom_ops:CustomOpDef.register_kernel",
        Detour(shim="library:register_kernel"),
        why="an operator without tensors looks for its kernel by the type of its device argument",
        test=f"{_TEST}::test_kernel_chosen_by_a_device_argument",
    ),
    Rule(
        "torch._library.custom_ops:CustomOpDef.set_kernel_enabled",
        _FIRST_TYPE,
        why="belongs to register_kernel",
        test=f"{_TEST}::test_kernels_by_device_type",
    ),
    Rule(
        "torch._library.custom_ops:CustomOpDef.register_autocast",
        Detour(keywords=("device_type",), shim="library:register_autocast_of"),
        why="it compares the device type with that of tensors",
        test=f"{_TEST}::test_autocast_of_a_custom_op",
    ),
    Rule(
        "torch.library:register_autocast",
        Detour(keywords=("device_type",), shim="library:register_autocast"),
        why="it compares the device type with that of tensors",
        test=f"{_TEST}::test_autocast_of_a_library_operator",
    ),
    Rule(
        "torch:_C._ExcludeDispatchKeyGuard.__init__",
        Detour(shim="library:exclude_keys"),
        why="a kernel that goes on below CUDA's autocast, as autocast kernels do, would call itself without end",
        test=f"{_TEST}::test_autocast_kernels_go_on_below_autocast",
    ),
    *each(
        "torch",
        """_C._SetExcludeDispatchKeyGuard.__init__ _C._IncludeDispatchKeyGuard.__init__
        _C._dispatch_tls_set_dispatch_key_excluded _C._dispatch_tls_is_dispatch_key_excluded
        _C._dispatch_tls_set_dispatch_key_included _C._dispatch_tls_is_dispatch_key_included""",
        Detour(shim="library:thread_key"),
        why="the thread's state of a key of CUDA's, such as AutocastCUDA, is that of the MUSA device's",
        test=f"{_TEST}::test_keys_of_the_thread",
    ),
    Rule(
        "torch._custom_op.impl:CustomOp._check_doesnt_have_library_impl",
        Detour(shim="library:check_free"),
        why="the older torch._custom_ops.impl takes the safety net of the CUDA key for a kernel",
        test=f"{_TEST}::test_the_older_interface",
    ),
    Rule(
        "torch.testing._internal.optests.autograd_registration:autograd_registration_check",
        Detour(shim="library:check_autograd"),
        why="torch.library.opcheck refuses devices it does not know",
        test=f"{_TEST}::test_opcheck",
    ),
    Rule(
        "torch.library:_impls",
        Install("library:adopt"),
        when="late",
        why="kernels registered for CUDA before activation would never run",
        test=f"{_TEST}::test_registered_before_activation",
    ),
    Rule(
        "torch._ops:OperatorBase.py_impl",
        Detour(shim="higher_order:py_impl"),
        why="a Python kernel registered for dispatch key CUDA would never run",
        test=f"{_HIGHER}::test_python_kernels",
    ),
    Rule(
        "torch:_ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS",
        Install("higher_order:adopt"),
        why="operators in Python (torch.cond, scan, FlexAttention ...) pass CUDA's autocast and stop at MUSA's",
        test=f"{_HIGHER}::test_autocast_passes_higher_order_operators",
    ),
    Rule(
        "torch._prims.rng_prims:get_device",
        Detour(shim="higher_order:rng_device"),
        why="a random operator recomputed in a compiled checkpoint knows CUDA's random states by device type",
        test=f"{_HIGHER}::test_dropout_in_a_compiled_checkpoint",
    ),
    Rule(
        "torch._prims_common:CUDARngStateHelper.get_torch_state_as_tuple",
        Detour(shim="higher_order:rng_state"),
        why="functionalize_rng_ops asks torch.cuda.is_available(), which says False",
        test=f"{_HIGHER}::test_functional_random_numbers",
    ),
    Rule(
        "torch._decomp.decompositions_for_rng:throw_on_non_cuda",
        Detour(shim="higher_order:counter_based"),
        why="functionalize_rng_ops refuses every device type but CUDA",
        test=f"{_HIGHER}::test_functional_random_numbers",
    ),
    Rule(
        "torch:_prims.rng_prims.register_philox_rand",
        Install("higher_order:philox_rand"),
        why="functionalize_rng_ops refuses every device type but CUDA",
        test=f"{_HIGHER}::test_functional_random_numbers",
    ),
)
