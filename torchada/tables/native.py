"""Places outside torch through which CUDA programs reach CUDA's C libraries."""

from ..rules import Detour, Rule

_TEST = "tests/native/test_ctypes.py"

RULES = (
    Rule(
        "ctypes:CDLL.__getitem__",
        Detour(shim="native_libraries:get_function"),
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
)
