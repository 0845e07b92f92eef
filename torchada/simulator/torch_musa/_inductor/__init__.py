"""MUSA for inductor; not simulated yet."""

from .._not_simulated import absent, refuse

__all__ = ["_init_inductor_backend_registration"]


def _init_inductor_backend_registration():
    refuse("torch_musa._inductor._init_inductor_backend_registration", "inductor backend")


__getattr__ = absent(
    __name__,
    {
        "_apply_ir_patch",
        "_apply_util_patches",
        "_aten_fallback",
        "_prepatch_triton_attrs_descriptor_for_torch25",
        "codegen",
        "cpp_builder",
        "graph",
        "ir",
        "musagraph_trees",
        "musagraph_utils",
        "package",
        "runtime",
        "utils",
    },
    "inductor backend",
)
