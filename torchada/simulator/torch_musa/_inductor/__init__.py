"""MUSA for inductor.

The vendor's package compiles through Triton. The simulated device computes in host memory and has no Triton compiler:
inductor's own C++ kernels run as launches on the device. Everything is registered when torch._inductor is imported.

The names load when they are asked for: part of them is needed while torch._inductor itself is still loading.
"""

_WHERE = {
    "_apply_ir_patch": (".ir", "_apply_ir_patch"),
    "_apply_util_patches": (".utils", "_apply_util_patches"),
    "_aten_fallback": ("._aten_fallback", None),
    "codegen": (".codegen", None),
    "config": ("torch._inductor.config", None),
    "cpp_builder": (".cpp_builder", None),
    "ir": (".ir", None),
    "musagraph_trees": (".musagraph_trees", None),
    "musagraph_utils": (".musagraph_utils", None),
    "package": (".package", None),
    "runtime": (".runtime", None),
    "utils": (".utils", None),
}

__all__ = ["_init_inductor_backend_registration"]


def _init_inductor_backend_registration():
    """Register the device's code generation: scheduling, wrappers and the operations of a device."""
    from torch._inductor.codegen.common import (
        get_device_op_overrides,
        register_backend_for_device,
        register_device_op_overrides,
    )

    from .codegen.cpp_wrapper_musa import MUSACppWrapper
    from .codegen.device_op_overrides import MUSADeviceOpOverrides
    from .codegen.simulated import SimulatedScheduling
    from .codegen.wrapper import MUSATritonWrapperCodeGen

    get_device_op_overrides("cpu")  # torch up to 2.7 registers its own ones only while there are none
    register_device_op_overrides("musa", MUSADeviceOpOverrides())
    register_backend_for_device("musa", SimulatedScheduling, MUSATritonWrapperCodeGen, MUSACppWrapper)


def _prepatch_triton_attrs_descriptor_for_torch25():
    """For Triton with torch 2.5: nothing to do without Triton."""


def __getattr__(name):
    where = _WHERE.get(name)
    if where is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    module = import_module(where[0], __name__)
    return module if where[1] is None else getattr(module, where[1])


def __dir__():
    return sorted({*globals(), *_WHERE})
