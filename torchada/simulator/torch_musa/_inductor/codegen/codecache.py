"""Compiled device kernels and models compiled ahead of time; not simulated."""

from torch._inductor.codecache import get_hash

from ..._not_simulated import stand_ins
from ...utils.musa_extension import _find_musa_home
from ..cpp_builder import CppTorchMusaOptions  # type: ignore[attr-defined]

__all__ = ["CppTorchMusaOptions", "_find_musa_home", "get_hash"]

globals().update(
    stand_ins(
        __name__,
        "compiler for device code",
        {
            "AotCodeCompiler": {
                "compile": "class (cls, graph, wrapper_code, kernel_code, serialized_extern_kernel_nodes, *, "
                "device_type, additional_files)"
            },
            "MusaKernelParamCache": {
                "cache": None,
                "clear": "static ()",
                "get": "class (cls, key)",
                "set": "class (cls, key, params, cubin)",
            },
            "get_cpp_wrapper_mubin_path_name": "()",
        },
    )
)
