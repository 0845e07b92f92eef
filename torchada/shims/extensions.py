"""torch's own ``torch.utils.cpp_extension`` building for MUSA: mcc for nvcc, MUSA's folders and libraries, ported
sources. Everything else (what setup scripts call, subclass and read) is torch's."""

from __future__ import annotations

import inspect
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ..errors import TorchadaError
from ..extensions import flags, sources
from ..extensions.stable import stable_compat_box_header, stable_compat_include_dir
from ..porting.tables import IDENTIFIER
from ..redirect import redirect_python
from ..toolkit import toolkit_home
from .cuda_members import put

Undo = Callable[[], None]
MARK = "_torchada_cuda"  # on an Extension that CUDAExtension made
DEVICES = ("cuda", "musa")
_KEYS: dict[str, Any] = {"cxx": [], "nvcc": []}
_LANGUAGE = re.compile(r"-x[ =]?musa")
_HOST_MACRO = re.compile(r"^('?-[DU]\s*)(\w+)")


class ToolkitError(TorchadaError, RuntimeError, OSError):
    """There is no MUSA toolkit to build with; the text says where it was looked for."""


def _torch() -> Any:
    return sys.modules["torch.utils.cpp_extension"]


def _vendor() -> Any:
    from torch_musa.utils import musa_extension

    return musa_extension


def _vendor_extension() -> Any:
    """An extension as torch_musa's own build makes it: its folders and libraries are those to build with."""
    return _vendor().MUSAExtension("torchada", [], extra_compile_args={"cxx": [], "mcc": []})


def _mcc() -> str:
    """The compiler. ToolkitError: it is not there."""
    home = _torch().CUDA_HOME
    if home is None:
        raise ToolkitError(
            "there is no MUSA toolkit here to build extensions with: install it, or set MUSA_HOME to the folder that "
            "has bin/mcc (looked at MUSA_HOME, MUSA_PATH, mcc on PATH, /usr/local/musa, /opt/musa)"
        )
    mcc = os.path.join(home, "bin", "mcc")
    if not os.access(mcc, os.X_OK) or not os.path.isfile(mcc):
        raise ToolkitError(f"{mcc} is no program: set MUSA_HOME to the folder of the MUSA toolkit, which has bin/mcc")
    return mcc


# ---------------------------------------------------------------- places
def cuda_home(native: Any, peer: Any) -> str | None:
    return toolkit_home()


def cudnn_home(native: Any, peer: Any) -> str | None:
    home: str | None = _vendor().MUDNN_HOME
    return home


def join_cuda_home(original: Callable[..., str], *paths: str) -> str:
    """``bin/nvcc`` is ``bin/mcc``; the error of a missing toolkit names MUSA's."""
    if paths[:1] == ("bin",) or _torch().CUDA_HOME is None:
        mcc = _mcc()
        if paths == ("bin", "nvcc"):
            return mcc
    return original(*paths)


def check_cuda_version(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """mcc is its own host compiler, and torch's version of CUDA means nothing to it: only that it is there."""
    _mcc()


def _asked(
    device_type: Any = None,
    torch_include_dirs: bool = True,
    cross_target_platform: str | None = None,
    *,
    cuda: bool | None = None,
) -> tuple[str, bool, str | None]:
    """The arguments of all versions of torch: a flag ``cuda`` up to 2.6, then ``device_type``; a device, folders of
    torch or not, another platform."""
    if cuda is None and isinstance(device_type, bool):
        cuda, device_type = device_type, None
    if device_type is None:
        device_type = "cuda" if cuda else "cpu"
    return str(device_type), torch_include_dirs, cross_target_platform


def _of_torch(original: Callable[..., list[str]], device: str, torch_dirs: bool, cross: str | None) -> list[str]:
    """What torch answers for a device that is not ours, in the signature it has."""
    known = inspect.signature(original).parameters
    given: dict[str, Any] = {"device_type": device, "torch_include_dirs": torch_dirs, "cross_target_platform": cross}
    found = original(**{name: value for name, value in given.items() if name in known})
    if torch_dirs or "torch_include_dirs" in known:
        return found
    root = os.path.dirname(os.path.realpath(sys.modules["torch"].__file__ or ""))
    return [path for path in found if not os.path.realpath(path).startswith(root + os.sep)]


def include_paths(original: Callable[..., list[str]], *args: Any, **kwargs: Any) -> list[str]:
    """MUSA's include folders for a CUDA extension, behind torch's; a CPU extension has torch's only."""
    device, torch_dirs, _ = _asked(*args, **kwargs)
    if device.lower() not in DEVICES:
        return _of_torch(original, device, torch_dirs, None)
    _mcc()
    paths = _of_torch(original, "cpu", torch_dirs, None)
    root = os.path.dirname(os.path.realpath(sys.modules["torch"].__file__ or ""))
    ours = [path for path in _vendor().include_paths(True) if not os.path.realpath(path).startswith(root + os.sep)]
    ours.append(os.path.join(_torch().CUDA_HOME, "include"))
    if "CUDA_INC_PATH" in os.environ:
        ours.append(os.environ["CUDA_INC_PATH"])
    return _once([*paths, *ours, stable_compat_include_dir()])


def library_paths(original: Callable[..., list[str]], *args: Any, **kwargs: Any) -> list[str]:
    """MUSA's library folders for a CUDA extension, behind torch's; a CPU extension has torch's only."""
    device, torch_dirs, cross = _asked(*args, **kwargs)
    if device.lower() not in DEVICES:
        return _of_torch(original, device, torch_dirs, cross)
    if cross is not None:
        raise TorchadaError(f"library_paths(cross_target_platform={cross!r}): MUSA is built for this platform only")
    _mcc()
    paths = _of_torch(original, "cpu", torch_dirs, None)
    root = os.path.dirname(os.path.realpath(sys.modules["torch"].__file__ or ""))
    ours = [path for path in _vendor().library_paths(True) if not os.path.realpath(path).startswith(root + os.sep)]
    home = _torch().CUDA_HOME
    ours += [path for name in ("lib64", "lib") if os.path.isdir(path := os.path.join(home, name))]
    return _once([*paths, *ours])


def _once(paths: Iterable[str]) -> list[str]:
    return list(dict.fromkeys(paths))


def is_cuda_file(original: Callable[[str], bool], path: str) -> bool:
    """MUSA's own suffixes too: such sources are not ported, and built the same."""
    return original(path) or os.path.splitext(path)[1] in (".mu", ".muh")


def cuda_arch_flags(original: Callable[..., list[str]], cflags: Sequence[str] | None = None) -> list[str]:
    """mcc's targets, unless *cflags* name some; NVIDIA's architectures say nothing about MUSA devices."""
    if any("offload-arch" in flag or "cuda-gpu-arch" in flag for flag in cflags or ()):
        return []
    if os.environ.get("TORCH_CUDA_ARCH_LIST") and not os.environ.get("TORCH_MUSA_ARCH_LIST"):
        flags.tell("TORCH_CUDA_ARCH_LIST names NVIDIA architectures and is not used: set TORCH_MUSA_ARCH_LIST")
    from ..arch import arch_flags, target_archs

    return arch_flags(target_archs(("TORCH_MUSA_ARCH_LIST",)))


# ---------------------------------------------------------------- extensions
def cuda_extension(original: Callable[..., Any], name: str, sources: Any, *args: Any, **kwargs: Any) -> Any:
    """torch's own CUDAExtension, then MUSA's libraries and macros for CUDA's."""
    kwargs["extra_compile_args"] = _one_key(kwargs.get("extra_compile_args"))
    if kwargs["extra_compile_args"] is None:
        del kwargs["extra_compile_args"]
    extension = original(name, sources, *args, **kwargs)
    setattr(extension, MARK, True)
    theirs = _vendor_extension()
    extension.libraries = flags.libraries(extension.libraries, extension.library_dirs)
    limited = extension.py_limited_api
    extension.libraries += [
        library
        for library in theirs.libraries
        if library not in extension.libraries and not (limited and library == "torch_python")
    ]
    extension.extra_link_args = flags.link_flags(extension.extra_link_args)
    extension.define_macros = [(flags.macro(macro), *value) for macro, *value in extension.define_macros]
    extension.undef_macros = [flags.macro(macro) for macro in extension.undef_macros]
    return extension


def _one_key(given: Any) -> Any:
    """Compile flags under torch's keys: what a setup script has for mcc, and for linking device code, joins nvcc's."""
    if not isinstance(given, Mapping):
        return given
    merged = {key: list(value) for key, value in given.items() if key not in ("mcc", "mcc_dlink")}
    for theirs, key in (("mcc", "nvcc"), ("mcc_dlink", "nvcc_dlink")):
        if theirs in given:
            merged[key] = [*merged.get(key, ()), *given[theirs]]
    return merged


def _with_box(given: Any) -> Any:
    """Compile flags, with the header for code of torch's stable ABI before all others."""
    if isinstance(given, dict):
        return {key: _with_box(given.get(key, [])) if key in ("cxx", "nvcc") else given[key] for key in _KEYS | given}
    box = stable_compat_box_header()
    return list(given) if box in given else [*given, "-include", box]


def build_extension() -> Undo:
    """Redirect the method that builds, and give the class ``get_mapping_rule``, which subclasses extend."""
    module = _torch()
    # torch 2.13 makes the class ready when it is asked for; that imports more than most programs need.
    command = vars(module).get("_BUILD_EXTENSION_CLASS") or vars(module)["BuildExtension"]
    undos = [
        redirect_python(command.build_extensions, build_extensions),
        put(command, "get_mapping_rule", get_mapping_rule),
    ]

    def undo() -> None:
        for undo_one in undos:
            undo_one()

    return undo


def get_mapping_rule(self: Any) -> dict[str, str]:
    """The names that porting changes, as a dict of your own: a subclass adds whole names to it, which win."""
    from .._mapping import _MAPPING_RULE

    return dict(_MAPPING_RULE)


def _own_rules(command: Any) -> dict[str, str]:
    """What a subclass's ``get_mapping_rule`` says otherwise than the tables. TorchadaError: it is no name."""
    if getattr(type(command).get_mapping_rule, "__func__", type(command).get_mapping_rule) is get_mapping_rule:
        return {}
    from .._mapping import _MAPPING_RULE

    rules = {old: new for old, new in command.get_mapping_rule().items() if _MAPPING_RULE.get(old) != new}
    for old, new in rules.items():
        if not IDENTIFIER.fullmatch(old) or not IDENTIFIER.fullmatch(new):
            raise TorchadaError(
                f"get_mapping_rule() of {type(command).__name__} maps {old!r} to {new!r}: "
                "a rule names whole identifiers, as 'my_cuda_name': 'my_musa_name'"
            )
    return rules


def build_extensions(original: Callable[[Any], None], self: Any) -> None:
    """Port the sources of CUDA extensions, then build as torch does, with mcc for nvcc."""
    is_cuda = _torch()._is_cuda_file
    ours = [ext for ext in self.extensions if getattr(ext, MARK, False) or any(map(is_cuda, ext.sources))]
    if not ours:
        return original(self)
    _mcc()
    how, rules = sources.way(), _own_rules(self)
    for ext in ours:
        ext.extra_compile_args = _one_key(ext.extra_compile_args)
        ported = sources.port(ext.sources, ext.include_dirs, os.getcwd(), self.build_temp, how=how, rules=rules)
        ext.sources = [os.path.relpath(source) if os.path.isabs(source) else source for source in ported.sources]
        ext.include_dirs = _once([*ported.first, *ext.include_dirs, *ported.last])
        if ported.stable:
            ext.extra_compile_args = _with_box(ext.extra_compile_args)
    self.compiler.src_extensions += [".mu", ".muh"]
    compile_one = self.compiler._compile

    def compile_for_musa(obj: Any, src: str, ext: Any, cc_args: Any, extra_postargs: Any, pp_opts: Any) -> Any:
        if is_cuda(src):
            cc_args = _compile_words(cc_args)
            extra_postargs = flags.mcc_flags(extra_postargs)
        else:
            extra_postargs = _host_macros(extra_postargs)
        return compile_one(obj, src, ext, cc_args, extra_postargs, pp_opts)

    self.compiler._compile = compile_for_musa  # what torch calls where it builds without ninja
    return original(self)


def jit_compile(original: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """``load`` and ``load_inline``: CUDA sources are built from a ported copy in the build folder."""
    bound = inspect.signature(original).bind(*args, **kwargs)
    given = bound.arguments
    names = given["sources"]
    if given["with_cuda"] is None:
        given["with_cuda"] = any(map(_torch()._is_cuda_file, names))
    if not given["with_cuda"]:
        return original(*args, **kwargs)
    _mcc()
    build = os.path.abspath(given["build_directory"])
    folders = [os.path.abspath(path) for path in given["extra_include_paths"] or ()]
    how = "off" if sources.way() == "off" else "copy"
    ported = sources.port(names, folders, os.getcwd(), build, how=how, verbose=given["verbose"])
    given["sources"] = ported.sources
    given["extra_include_paths"] = _once([*ported.first, *folders, *ported.last])
    if ported.stable:
        for name in ("extra_cflags", "extra_cuda_cflags"):
            given[name] = _with_box(given[name] or [])
    return original(*bound.args, **bound.kwargs)


def prepare_ldflags(original: Callable[..., list[str]], *args: Any, **kwargs: Any) -> list[str]:
    """torch's link flags for a C++ extension, then MUSA's libraries where it has CUDA sources."""
    bound = inspect.signature(original).bind(*args, **kwargs)
    given = bound.arguments
    if not given["with_cuda"]:
        return original(*args, **kwargs)
    given["with_cuda"] = False
    given["extra_ldflags"] = flags.link_flags(given["extra_ldflags"])
    done = original(*bound.args, **bound.kwargs)
    theirs = [f"-l{library}" for library in _vendor_extension().libraries]
    if given["is_standalone"]:
        theirs = [flag for flag in theirs if flag != "-ltorch_python"]
    folders = [f"-L{path}" for path in library_paths(_torch().library_paths, "cuda", False)]
    return [*done, *folders, *(flag for flag in theirs if flag not in done)]


# ---------------------------------------------------------------- the compiler's command
def write_ninja_file(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """torch's ninja file with mcc's flags for nvcc's, and with the headers that each object depends on."""
    bound = inspect.signature(original).bind(*args, **kwargs)
    given = bound.arguments
    if not given["with_cuda"] and not given["cuda_dlink_post_cflags"]:
        return original(*args, **kwargs)
    for name in ("cflags", "post_cflags"):
        if given[name]:
            given[name] = _host_macros(given[name])
    if given["with_cuda"]:
        given["cuda_cflags"] = _quoted(_compile_words(_words(given["cuda_cflags"])))
    for name in ("cuda_post_cflags", "cuda_dlink_post_cflags"):
        if given[name]:
            given[name] = _quoted(flags.mcc_flags(_words(given[name])))
    original(*bound.args, **bound.kwargs)
    file = Path(given["path"])
    text = re.sub(r"(?m)^nvcc = .*$", lambda match: f"nvcc = {_command()}", file.read_text())
    # torch leaves this to nvcc, where it has one; an older one built for CUDA writes nvcc's own flags.
    text = re.sub(
        r"(?m)^rule cuda_compile\n(?:  depfile = .*\n  deps = .*\n)?  command = \$nvcc .*?\$cuda_cflags",
        r"rule cuda_compile\n  depfile = $out.d\n  deps = gcc\n  command = $nvcc -MMD -MF $out.d $cuda_cflags",
        text,
    )
    file.write_text(text)


def _command() -> str:
    """The compiler as ninja is told: as PYTORCH_MCC says (torch_musa reads it too), else the toolkit's."""
    return os.environ.get("PYTORCH_MCC") or shlex.quote(_mcc())


def _host_macros(given: Iterable[str]) -> list[str]:
    """Flags of the host's compiler, with macros named as the ported sources name them."""
    return [_HOST_MACRO.sub(lambda match: match[1] + flags.macro(match[2]), flag, count=1) for flag in given]


def _words(texts: Iterable[str] | None) -> list[str]:
    return shlex.split(" ".join(texts or ()))


def _quoted(words: Iterable[str]) -> list[str]:
    return [shlex.quote(word) for word in words]


def _compile_words(given: Iterable[str]) -> list[str]:
    """The flags before the source: its language, torch_musa's usual ones, and *given*."""
    words = flags.mcc_flags(given)
    kept = set(_torch().COMMON_NVCC_FLAGS)
    for flag in _words(_vendor().COMMON_MCC_FLAGS):
        # A setup script that removes -D__CUDA_NO_HALF_OPERATORS__ from torch's list means MUSA's as well.
        removed = flag.startswith("-D__MUSA_NO_") and flag.replace("__MUSA_NO_", "__CUDA_NO_") not in kept
        if flag not in words and not removed:
            words.append(flag)
    return words if _LANGUAGE.search(" ".join(words)) else ["-x", "musa", *words]
