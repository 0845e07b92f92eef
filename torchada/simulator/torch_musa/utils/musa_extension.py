"""Building C++ and MUSA extensions: with the toolkit in MUSA_HOME, where one is installed beside the simulated device.

BuildExtension compiles without ninja; load and load_inline refuse.
"""

import copy
import os
import platform
from os.path import dirname, join

import setuptools
import torch
from setuptools.command.build_ext import build_ext

from .._not_simulated import stand_ins

_HERE = os.path.abspath(__file__)
_TORCH_MUSA_PATH = dirname(dirname(_HERE))
TORCH_MUSA_LIB_PATH = join(_TORCH_MUSA_PATH, "lib")
TORCH_LIB_PATH = join(dirname(os.path.abspath(torch.__file__)), "lib")
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


def _get_musa_arch_flags():
    """mcc's targets: those TORCH_MUSA_ARCH_LIST names ("22;31"), else those of the devices."""
    named = os.environ.get("TORCH_MUSA_ARCH_LIST", "").replace(" ", ";").split(";")
    archs = [arch for arch in named if arch]
    if not archs:
        import torch_musa

        found = (torch_musa.get_device_capability(i) for i in range(torch_musa.device_count()))
        archs = sorted({f"{major}{minor}" for major, minor in found})
    return [f"--offload-arch=mp_{arch}" for arch in archs]


def include_paths(musa=False):
    """The include folders of torch and torch_musa, with *musa* the toolkit's as well."""
    root = join(dirname(os.path.abspath(torch.__file__)), "include")
    paths = [root, join(root, "torch", "csrc", "api", "include")]
    if musa:
        paths.append(_join_musa_home("include"))
        if MUDNN_HOME is not None:
            paths.append(join(MUDNN_HOME, "include"))
    return paths


def library_paths(musa=False):
    """The library folders of torch and torch_musa, with *musa* the toolkit's as well."""
    paths = [TORCH_LIB_PATH]
    if musa:
        lib = "lib64" if os.path.exists(_join_musa_home("lib64")) else "lib"
        paths.append(_join_musa_home(lib))
        if MUDNN_HOME is not None:
            paths.append(join(MUDNN_HOME, lib))
    return paths


def MUSAExtension(name, sources, *args, **kwargs):
    """A setuptools.Extension for MUSA: the toolkit's folders and libraries; compile flags under "cxx" and "mcc"."""
    kwargs["library_dirs"] = [*kwargs.get("library_dirs", ()), *library_paths(musa=True)]
    kwargs["include_dirs"] = [*kwargs.get("include_dirs", ()), *include_paths(musa=True)]
    libraries = ["c10", "torch", "torch_cpu"]
    if not kwargs.get("py_limited_api", False):
        libraries.append("torch_python")
    kwargs["libraries"] = [*kwargs.get("libraries", ()), *libraries, "musart"]
    kwargs["language"] = "c++"
    dlink_libraries = kwargs.pop("dlink_libraries", [])
    if kwargs.pop("dlink", False) or dlink_libraries:
        given = dict(kwargs.get("extra_compile_args", {}))
        linked = [f"-L{path}" for path in kwargs["library_dirs"]] + [f"-l{name}" for name in dlink_libraries]
        given["mcc_dlink"] = [*given.get("mcc_dlink", ()), "-dlink", *linked]
        kwargs["extra_compile_args"] = given
    # The vendor's function takes a dict here, and fails with a list.
    kwargs.get("extra_compile_args", {}).get("mcc")
    return setuptools.Extension(name, sources, *args, **kwargs)


class BuildExtension(build_ext):
    """Builds the extensions of a setup.py, sources with MUSA's suffixes with mcc (here always without ninja)."""

    @classmethod
    def with_options(cls, **options):
        """A subclass whose constructor gets *options*."""

        class cls_with_options(cls):  # type: ignore[misc, valid-type]
            def __init__(self, *args, **kwargs):
                super().__init__(*args, **{**kwargs, **options})

        return cls_with_options

    def __init__(self, *args, **kwargs):
        super().__init__(*args, **{k: v for k, v in kwargs.items() if k not in ("no_python_abi_suffix", "use_ninja")})
        self.no_python_abi_suffix = kwargs.get("no_python_abi_suffix", False)
        self.use_ninja = False

    def finalize_options(self):
        super().finalize_options()

    def build_extensions(self):
        self._check_abi()
        for extension in self.extensions:
            self._define_torch_extension_name(extension)
            self._add_gnu_cpp_abi_flag(extension)
        self.compiler.src_extensions += [".mu", ".muh"]
        compile_one = self.compiler._compile

        def compile_with_mcc(obj, src, ext, cc_args, extra_postargs, pp_opts):
            musa = _is_musa_file(src)
            flags = extra_postargs
            if isinstance(flags, dict):
                flags = flags.get("mcc" if musa else "cxx", [])
            usual = self.compiler.compiler_so
            try:
                if musa:
                    self.compiler.set_executable("compiler_so", [_join_musa_home("bin", "mcc"), "-x", "musa"])
                    flags = [*COMMON_MCC_FLAGS, "-fPIC", *flags, *_get_musa_arch_flags()]
                compile_one(obj, src, ext, cc_args, flags, pp_opts)
            finally:
                self.compiler.set_executable("compiler_so", usual)

        self.compiler._compile = compile_with_mcc
        super().build_extensions()

    def get_ext_filename(self, ext_name):
        name = super().get_ext_filename(ext_name)
        parts = name.split(".")
        return ".".join([*parts[:-2], parts[-1]]) if self.no_python_abi_suffix and len(parts) > 2 else name

    def _check_abi(self):
        return get_cxx_compiler()

    def _add_compile_flag(self, extension, flag):
        extension.extra_compile_args = copy.deepcopy(extension.extra_compile_args)
        if isinstance(extension.extra_compile_args, dict):
            for flags in extension.extra_compile_args.values():
                flags.append(flag)
        else:
            extension.extra_compile_args.append(flag)

    def _define_torch_extension_name(self, extension):
        if isinstance(extension.extra_compile_args, dict):
            for key in ("cxx", "mcc"):
                extension.extra_compile_args.setdefault(key, [])
        self._add_compile_flag(extension, f"-DTORCH_EXTENSION_NAME={extension.name.rpartition('.')[2]}")

    def _add_gnu_cpp_abi_flag(self, extension):
        self._add_compile_flag(extension, f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}")


_FLAGS = "extra_cflags, extra_musa_cflags, extra_sycl_cflags, extra_ldflags, extra_include_paths"
_NINJA = (
    "cflags, post_cflags, musa_cflags, musa_post_cflags, musa_dlink_post_cflags, "
    "sycl_cflags, sycl_post_cflags, sycl_dlink_post_cflags"
)
_OPTIONS = _FLAGS.replace(",", "=None,") + "=None, build_directory=None, verbose=False, with_musa=None, with_sycl=None"

globals().update(
    stand_ins(
        __name__,
        "ninja build of torch_musa's own",
        {
            "_get_build_directory": "(name, verbose)",
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
            "load": f"(name, sources, {_OPTIONS}, is_python_module=True, is_standalone=False, keep_intermediates=True)",
            "load_inline": f"(name, cpp_sources, musa_sources=None, sycl_sources=None, functions=None, {_OPTIONS}, "
            "is_python_module=True, with_pytorch_error_handling=True, keep_intermediates=True, use_pch=False)",
        },
    )
)
