"""Rows for torch.utils.cpp_extension: torch's own build of C++ and CUDA extensions, with MUSA's toolkit."""

from ..rules import Detour, Install, Rule, Wrap

_AT = "torch.utils.cpp_extension"
_BUILD = "tests/extensions/test_build.py"
_PARTS = "tests/extensions/test_parts.py"

RULES = (
    Rule(
        f"{_AT}:CUDA_HOME",
        Wrap("extensions:cuda_home"),
        why="setup scripts ask for it before they build CUDA sources; here it is the MUSA toolkit",
        test=f"{_PARTS}::test_homes",
    ),
    Rule(
        f"{_AT}:CUDNN_HOME",
        Wrap("extensions:cudnn_home"),
        why="muDNN takes the place of cuDNN, and torch_musa knows where it lies",
        test=f"{_PARTS}::test_homes",
    ),
    Rule(
        f"{_AT}:_join_cuda_home",
        Detour(shim="extensions:join_cuda_home"),
        why="the compiler is mcc, and the error of a missing toolkit names MUSA's",
        test=f"{_PARTS}::test_a_toolkit_that_is_not_there",
    ),
    Rule(
        f"{_AT}:_check_cuda_version",
        Detour(shim="extensions:check_cuda_version"),
        why="mcc has no version of CUDA to compare torch's with",
        test=f"{_BUILD}::test_built_in_place",
    ),
    Rule(
        f"{_AT}:include_paths",
        Detour(shim="extensions:include_paths"),
        why="CUDA's headers are MUSA's and torch_musa's",
        test=f"{_PARTS}::test_paths",
    ),
    Rule(
        f"{_AT}:library_paths",
        Detour(shim="extensions:library_paths"),
        why="CUDA's libraries are MUSA's and torch_musa's",
        test=f"{_PARTS}::test_paths",
    ),
    Rule(
        f"{_AT}:_is_cuda_file",
        Detour(shim="extensions:is_cuda_file"),
        why="a project may have sources in MUSA's own suffixes too",
        test=f"{_PARTS}::test_suffixes",
    ),
    Rule(
        f"{_AT}:_get_cuda_arch_flags",
        Detour(shim="extensions:cuda_arch_flags"),
        why="the targets are MUSA's architectures",
        test=f"{_PARTS}::test_architectures",
    ),
    Rule(
        f"{_AT}:CUDAExtension",
        Detour(shim="extensions:cuda_extension"),
        why="libraries and macros have MUSA's names",
        test=f"{_PARTS}::test_cuda_extension",
    ),
    Rule(
        f"{_AT}:BuildExtension",
        Install("extensions:build_extension"),
        why="the sources are ported before they are built",
        test=f"{_BUILD}::test_built_in_place",
    ),
    Rule(
        f"{_AT}:_jit_compile",
        Detour(shim="extensions:jit_compile"),
        why="load and load_inline build a ported copy of the sources",
        test=f"{_BUILD}::test_load_inline",
    ),
    Rule(
        f"{_AT}:_prepare_ldflags",
        Detour(shim="extensions:prepare_ldflags"),
        why="libraries have MUSA's names",
        test=f"{_BUILD}::test_load_inline",
    ),
    Rule(
        f"{_AT}:_write_ninja_file",
        Detour(shim="extensions:write_ninja_file"),
        why="mcc takes Clang's flags, not nvcc's",
        test=f"{_BUILD}::test_built_in_place",
    ),
)
