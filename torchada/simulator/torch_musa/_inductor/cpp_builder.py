"""Compiling for MUSA's runtime; not simulated: inductor's own C++ builder compiles for the simulated device."""

from .._not_simulated import stand_ins
from ..utils import musa_extension  # noqa: F401

_OPTIONS = (
    "vec_isa=invalid_vec_isa, include_pytorch=False, device_type='musa', aot_mode=False, compile_only=False, "
    "use_relative_path=False, use_mmap_weights=False, shared=True, extra_flags=(), min_optimize=False"
)

globals().update(
    stand_ins(
        __name__,
        "compiler for device code",
        {
            "CppTorchMusaOptions": {"__init__": f"(self, {_OPTIONS})"},
            "_transform_musa_paths": "(lpaths)",
            "get_cpp_torch_musa_options": "(musa, aot_mode=False)",
        },
        invalid_vec_isa="invalid_vec_isa",
    )
)
