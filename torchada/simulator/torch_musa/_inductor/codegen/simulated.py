"""Inductor's C++ kernels as launches on the simulated device. Not part of the vendor's package."""

import contextlib
import ctypes

import torch_musa
from torch._inductor import config, utils
from torch._inductor.codecache import CppCodeCache, CppPythonBindingsCodeCache, LambdaFuture
from torch._inductor.codegen.cpp import CppScheduling
from torch._inductor.codegen.wrapper import PythonWrapperCodegen, SubgraphPythonWrapperCodegen
from torch._inductor.virtualized import V

_MARK = "// a kernel of the simulated MUSA device\n"
_CPU_KERNEL = "async_compile.cpp_pybinding("
_LAUNCH = "simulated_musa_kernel"
# How an argument reaches the kernel: see csrc/inductor.cpp.
_KINDS = {"int64_t": "i", "float": "f", "double": "d"}
# The method that writes a kernel's call; up to torch 2.7 the public one, without a line of its own in between.
_CALL = "_generate_kernel_call_helper"
if not hasattr(PythonWrapperCodegen, _CALL):
    _CALL = "generate_kernel_call"


def _no_triton():
    """Up to torch 2.7 inductor takes a device that it does not know for one of Triton while it writes a kernel; later
    ones ask `get_current_backend` (see `_install`)."""
    return contextlib.nullcontext() if hasattr(utils, "get_current_backend") else config.patch(cuda_backend="cpp")


class SimulatedScheduling(CppScheduling):
    """Inductor's code generation for C++ with kernels of the device."""

    def define_kernel(self, src_code, nodes, kernel_args=None):
        """Define the kernel in the wrapper and return its name; it is not shared with a CPU kernel of the same code."""
        return super().define_kernel(_MARK + src_code, nodes, kernel_args)

    def codegen_node(self, node):
        """Write the kernel of a node."""
        with _no_triton():
            return super().codegen_node(node)

    def ready_to_flush(self):
        """True: the CPU collects loops into one function; on a device each is a kernel, on the stream of its place."""
        return True


class SimulatedWrapper(PythonWrapperCodegen):
    """The Python code that allocates and launches."""

    def define_kernel(self, kernel_name, kernel_body, *args, **kwargs):
        """Define a kernel; one of the device is launched on it."""
        if _MARK in kernel_body and kernel_body.startswith(_CPU_KERNEL):
            launch = f"{_LAUNCH}(async_compile, {kernel_name!r}, "
            kernel_body = launch + kernel_body.removeprefix(_CPU_KERNEL).replace(_MARK, "", 1)
        return super().define_kernel(kernel_name, kernel_body, *args, **kwargs)

    def write_header(self):
        """Write the imports."""
        super().write_header()
        self.imports.writeline(f"from {__name__} import {_LAUNCH}")

    # `standalone_compile`, which inference engines call, has Triton's kernels tuned while it compiles: the code for
    # that begins with the device, and imports Triton.
    def codegen_device_guard_enter(self, *args, **kwargs):
        """Make a device current."""
        with config.patch("triton.autotune_at_compile_time", False):
            super().codegen_device_guard_enter(*args, **kwargs)

    def codegen_device_guard_exit(self):
        """Make the device from before current again."""
        with config.patch("triton.autotune_at_compile_time", False):
            super().codegen_device_guard_exit()

    def generate_and_run_autotune_block(self):
        """Nothing: the device has no kernels of Triton."""

    def _generate_kernel_call(self, kernel_name, call_args, *args, device=None, triton=True, **kwargs):
        device = device or V.graph.get_current_device_or_throw()
        if device.type == "musa" and not triton:
            self.writeline(self.wrap_kernel_call(kernel_name, call_args))
            return
        getattr(super(), _CALL)(kernel_name, call_args, *args, device=device, triton=triton, **kwargs)


setattr(SimulatedWrapper, _CALL, SimulatedWrapper._generate_kernel_call)


class SimulatedSubgraphWrapper(SimulatedWrapper, SubgraphPythonWrapperCodegen):
    """The wrapper of a subgraph."""


class _Kernels(CppCodeCache):
    # Compiled with the same precompiled header as kernels of the CPU, where this torch precompiles headers.
    _get_uncompiled_header = getattr(CppPythonBindingsCodeCache, "_get_uncompiled_header", None)


def simulated_musa_kernel(async_compile, name, argtypes, source):
    """Compile a C++ kernel, called `kernel` in `source`, and return it as a callable that launches it.

    `argtypes`: the C types of its parameters. The result, or a future of inductor, takes tensors and numbers.
    """
    kinds = ""
    arguments = []
    for index, argtype in enumerate(argtypes):
        plain = argtype.replace("const ", "").strip()
        kinds += "p" if plain.endswith("*") else _KINDS[plain]
        arguments.append(f"*static_cast<{plain}*>(arguments[{index}])")
    entry = f'\nextern "C" void musa_entry(void* const* arguments) {{\n    kernel({", ".join(arguments)});\n}}\n'
    compiled = _Kernels.load_async(source + entry, device_type="cpu")

    def load():
        library = compiled()
        address = ctypes.cast(library.musa_entry, ctypes.c_void_p).value
        return torch_musa._MUSAC._sim_kernel(name, address, kinds, library)

    return load() if config.compile_threads <= 1 else LambdaFuture(load)
