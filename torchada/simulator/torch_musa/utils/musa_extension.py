"""Building C++ extensions; the simulated device has no compiler for device code, so these refuse."""

import os
from os.path import dirname, join

from .._not_simulated import absent, refuse

_PART = "compiler for device code"
_HERE = os.path.abspath(__file__)
_TORCH_MUSA_PATH = dirname(dirname(_HERE))
TORCH_MUSA_LIB_PATH = join(_TORCH_MUSA_PATH, "lib")
MUSA_HOME = os.environ.get("MUSA_HOME") or os.environ.get("MUSA_PATH")
MUDNN_HOME = os.environ.get("MUDNN_HOME") or os.environ.get("MUDNN_PATH")


class BuildExtension:
    """setuptools command that builds MUSA extensions."""

    def __init__(self, *args, **kwargs):
        refuse("torch_musa.utils.musa_extension.BuildExtension", _PART)

    @classmethod
    def with_options(cls, **options):
        """The command with options set."""
        refuse("torch_musa.utils.musa_extension.BuildExtension", _PART)


def MUSAExtension(name, sources, *args, **kwargs):
    """A setuptools extension with MUSA sources."""
    refuse("torch_musa.utils.musa_extension.MUSAExtension", _PART)


def include_paths(musa=False):
    """Directories with headers."""
    refuse("torch_musa.utils.musa_extension.include_paths", _PART)


def library_paths(musa=False):
    """Directories with libraries."""
    refuse("torch_musa.utils.musa_extension.library_paths", _PART)


def load(
    name,
    sources,
    extra_cflags=None,
    extra_musa_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_musa=None,
    with_sycl=None,
    is_python_module=True,
    is_standalone=False,
    keep_intermediates=True,
):
    """Compile and load an extension from files."""
    refuse("torch_musa.utils.musa_extension.load", _PART)


def load_inline(
    name,
    cpp_sources,
    musa_sources=None,
    sycl_sources=None,
    functions=None,
    extra_cflags=None,
    extra_musa_cflags=None,
    extra_sycl_cflags=None,
    extra_ldflags=None,
    extra_include_paths=None,
    build_directory=None,
    verbose=False,
    with_musa=None,
    with_sycl=None,
    is_python_module=True,
    with_pytorch_error_handling=True,
    keep_intermediates=True,
    use_pch=False,
):
    """Compile and load an extension from strings."""
    refuse("torch_musa.utils.musa_extension.load_inline", _PART)


__getattr__ = absent(
    __name__,
    {
        "COMMON_MCC_FLAGS",
        "RERUN_CMAKE",
        "SUBPROCESS_DECODE_ARGS",
        "_find_musa_home",
        "_get_musa_arch_flags",
        "_is_musa_file",
        "_jit_compile",
        "_join_musa_home",
        "_write_ninja_file",
        "_write_ninja_file_and_build_library",
        "_write_ninja_file_and_compile_objects",
        "_write_ninja_file_to_build_library",
        "get_cxx_compiler",
        "install_requires",
    },
    _PART,
)
