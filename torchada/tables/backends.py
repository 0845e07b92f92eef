"""torch.backends.cuda and torch.backends.cudnn: the settings of CUDA's libraries."""

from ..rules import Detour, Rule

_TEST = "tests/cuda/test_backends.py"

RULES = (
    Rule(
        "torch._C:_set_cublas_allow_tf32",
        Detour(shim="backends:set_allow_tf32"),
        why="muDNN has one TF32 switch for all operators; it follows the one of matrix products",
        test=f"{_TEST}::test_tf32",
    ),
    Rule(
        "torch._C:_set_float32_matmul_precision",
        Detour(shim="backends:set_matmul_precision"),
        why="as torch.backends.cuda.matmul.allow_tf32",
        test=f"{_TEST}::test_tf32",
    ),
    Rule(
        "torch._C:_set_fp32_precision_setter",
        Detour(shim="backends:set_fp32_precision"),
        why="as torch.backends.cuda.matmul.allow_tf32",
        test=f"{_TEST}::test_tf32",
    ),
    Rule(
        "torch:_cufft_get_plan_cache_size",
        Detour(shim="backends:plan_cache_size"),
        why="muFFT's plans cannot be counted: 0",
        test=f"{_TEST}::test_plan_cache",
    ),
    Rule(
        "torch:_cufft_get_plan_cache_max_size",
        Detour(shim="backends:plan_cache_max_size"),
        why="answers what was set; muFFT's plan cache has no such setting",
        test=f"{_TEST}::test_plan_cache",
    ),
    Rule(
        "torch:_cufft_set_plan_cache_max_size",
        Detour(shim="backends:set_plan_cache_max_size"),
        why="kept; muFFT's plan cache has no such setting",
        test=f"{_TEST}::test_plan_cache",
    ),
    Rule(
        "torch:_cufft_clear_plan_cache",
        Detour(shim="backends:clear_plan_cache"),
        why="no-op: muFFT's plan cache cannot be cleared",
        test=f"{_TEST}::test_plan_cache",
    ),
    Rule(
        "torch.backends.cuda:preferred_linalg_library",
        Detour(shim="backends:preferred_linalg_library"),
        why="kept; torch_musa has one implementation of each operator",
        test=f"{_TEST}::test_preferred_libraries",
    ),
    Rule(
        "torch.backends.cuda:preferred_blas_library",
        Detour(shim="backends:preferred_blas_library"),
        why="kept; torch_musa has one implementation of each operator",
        test=f"{_TEST}::test_preferred_libraries",
    ),
)
