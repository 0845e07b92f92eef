"""Building C++ extensions; the simulated device has no compiler for device code, so these refuse."""

import os
import platform
from os.path import dirname, join

from .._not_simulated import stand_ins

_PART = "compiler for device code"
_HERE = os.path.abspath(__file__)
_TORCH_MUSA_PATH = dirname(dirname(_HERE))
TORCH_MUSA_LIB_PATH = join(_TORCH_MUSA_PATH, "lib")
RERUN_CMAKE = False
SUBPROCESS_DECODE_ARGS: tuple[str, ...] = ()
COMMON_MCC_FLAGS: list[str] = []
install_requires: list[str] = []
MUDNN_HOME = os.environ.get("MUDNN_HOME") or os.environ.get("MUDNN_PATH")


def _find_musa_home():
    """Where MUSA is installed, as MUSA_HOME or MUSA_PATH says; None when neither does."""
    return os.environ.get("MUSA_HOME") or os.environ.get("MUSA_PATH")


MUSA_HOME = _find_musa_home()


def _join_musa_home(*paths):
    if MUSA_HOME is None:
        raise OSError("MUSA_HOME environment variable is not set. Please set it to your MUSA install root.")
    return join(MUSA_HOME, *paths)


def _is_musa_file(path):
    return os.path.splitext(path)[1] in (".mu", ".muh")


def _get_cpu_arch():
    return platform.machine()


def _maybe_write(filename, new_content):
    """Write a file unless it holds this already, so that its time stays."""
    if os.path.exists(filename):
        with open(filename) as file:
            if file.read() == new_content:
                return
    with open(filename, "w") as file:
        file.write(new_content)


def get_cxx_compiler():
    """The C++ compiler, as CXX says it."""
    return os.environ.get("CXX", "c++")


_FLAGS = "extra_cflags, extra_musa_cflags, extra_sycl_cflags, extra_ldflags, extra_include_paths"
_NINJA = (
    "cflags, post_cflags, musa_cflags, musa_post_cflags, musa_dlink_post_cflags, "
    "sycl_cflags, sycl_post_cflags, sycl_dlink_post_cflags"
)
_OPTIONS = _FLAGS.replace(",", "=None,") + "=None, build_directory=None, verbose=False, with_musa=None, with_sycl=None"

globals().update(
    stand_ins(
        __name__,
        _PART,
        {
            "BuildExtension": {
                "__init__": "(self, *args, **kwargs)",
                "_add_compile_flag": "(self, extension, flag)",
                "_add_gnu_cpp_abi_flag": "(self, extension)",
                "_check_abi": "(self)",
                "_define_torch_extension_name": "(self, extension)",
                "build_extensions": "(self)",
                "finalize_options": "(self)",
                "get_ext_filename": "(self, ext_name)",
                "with_options": "class (cls, **options)",
            },
            "MUSAExtension": "(name, sources, *args, **kwargs)",
            "_get_build_directory": "(name, verbose)",
            "_get_musa_arch_flags": "()",
            "_jit_compile": f"(name, sources, {_FLAGS}, build_directory, verbose, with_musa, with_sycl, "
            "is_python_module, is_standalone, keep_intermediates=True)",
            "_prepare_ldflags": "(extra_ldflags, with_musa, verbose, is_standalone)",
            "_write_ninja_file": f"(path, {_NINJA}, sources, objects, ldflags, library_target, with_musa, with_sycl, "
            "force_mcc)",
            "_write_ninja_file_and_build_library": f"(name, sources, {_FLAGS}, build_directory, verbose, with_musa, "
            "with_sycl, is_standalone=False)",
            "_write_ninja_file_and_compile_objects": f"(sources, objects, {_NINJA}, build_directory, verbose, "
            "with_musa, with_sycl, force_mcc)",
            "_write_ninja_file_to_build_library": f"(path, name, sources, {_FLAGS}, with_musa, with_sycl, "
            "is_standalone)",
            "include_paths": "(musa=False)",
            "library_paths": "(musa=False)",
            "load": f"(name, sources, {_OPTIONS}, is_python_module=True, is_standalone=False, keep_intermediates=True)",
            "load_inline": f"(name, cpp_sources, musa_sources=None, sycl_sources=None, functions=None, {_OPTIONS}, "
            "is_python_module=True, with_pytorch_error_handling=True, keep_intermediates=True, use_pch=False)",
        },
    )
)
