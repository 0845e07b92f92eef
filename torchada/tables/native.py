"""Places outside torch through which CUDA programs reach CUDA's C libraries."""

from ..rules import Detour, Install, Provide, Rule

_TEST = "tests/native/test_ctypes.py"
_FLASH = "tests/native/test_flash_attention.py"
_TRITON = "tests/native/test_triton.py"

RULES = (
    Rule(
        "ctypes:_CFuncPtr.__new__",
        Detour(shim="native_libraries:new_function"),
        why="MUSA's libraries have the functions of CUDA's under other names",
        test=f"{_TEST}::test_functions_answer_to_their_cuda_names",
    ),
    Rule(
        "ctypes:CDLL.__init__",
        Detour(shim="native_libraries:open_library"),
        why="programs open libcudart, libnccl ... by name; a MUSA machine has their counterparts",
        test=f"{_TEST}::test_asking_for_a_cuda_library_finds_its_counterpart",
    ),
    Rule(
        "ctypes.util:find_library",
        Detour(shim="native_libraries:find_library"),
        why="the name of a CUDA library leads to its counterpart",
        test=f"{_TEST}::test_find_library",
    ),
    Rule(
        ":pynvml",
        Provide("pymtml", shim="telemetry:fill_pynvml", distribution="mthreads-ml-py"),
        why="Moore Threads' management library has NVML's function names; its errors have names of their own",
        test="tests/native/test_telemetry.py::test_pynvml",
    ),
    Rule(
        "sgl_kernel:flash_attn",
        Provide("flash_attn_interface"),
        why="the MUSA build of FlashAttention is a package of its own",
        test=f"{_FLASH}::test_sgl_kernel",
    ),
    Rule(
        "flash_attn_interface:only_qv",
        Install("flash_attention:drop_only_qv"),
        why="callers of sgl_kernel pass this keyword, which the MUSA functions do not know",
        test=f"{_FLASH}::test_only_qv",
    ),
    Rule(
        "flash_attn_interface:_flash_attn_forward",
        Install("flash_attention:forward"),
        why="context-parallel attention calls it; an inference build has the public functions only",
        test=f"{_FLASH}::test_forward",
    ),
    Rule(
        "triton.language.extra:cuda",
        Install("triton_extra:cuda"),
        why="the MUSA build of Triton has these functions under another name",
        test=f"{_TRITON}::test_extra_cuda",
    ),
)
