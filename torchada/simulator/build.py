"""Building the simulated MUSA device: `torchada/simulator/csrc`, compiled on first use and kept.

The library depends on the installed torch (its C++ classes change between versions), so it is built where
it is used. It lies in a cache directory whose name says for which torch, which Python and which sources it
was built. A build works in a directory of its own and renames the finished library into place, so a killed
build leaves nothing that a later one could trip over.

Importing this module imports neither torch nor a compiler; `load()` and `ensure()` need both.
"""

from __future__ import annotations

import concurrent.futures
import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

__all__ = ["SimulatorBuildError", "cache_dir", "ensure", "is_built", "library_path", "load"]

MODULE_NAME = "torch_musa._MUSAC"
SOURCE_DIR = Path(__file__).resolve().parent / "csrc"
SOURCES = (
    "fallback.cpp",  # the longest first, so that two jobs end together
    "autocast.cpp",
    "kernels.cpp",
    "runtime.cpp",
    "module.cpp",
    "allocator.cpp",
    "objects.cpp",
    "profile.cpp",
)
EXPECTED_SECONDS = 60


class SimulatorBuildError(RuntimeError):
    """The simulated device could not be built. The text says what to install or to change."""


def cache_dir() -> Path:
    """The directory that holds every built library.

    `TORCHADA_SIM_CACHE` if set, else `torchada/simulator` in the user's cache directory.
    """
    own = os.environ.get("TORCHADA_SIM_CACHE")
    if own:
        return Path(own).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    if not (base and os.path.isabs(base)):  # a relative one is not valid, says the XDG specification
        base = str(Path.home() / ".cache")
    return Path(base) / "torchada" / "simulator"


def library_path() -> Path:
    """Where the library for this torch, this Python and these sources is, or will be."""
    import torch

    digest = hashlib.sha256()
    digest.update(repr((_flags(), SOURCES, sys.platform)).encode())
    for path in sorted(SOURCE_DIR.iterdir()):
        if path.suffix in (".cpp", ".h"):
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    tag = sysconfig.get_config_var("SOABI") or sys.implementation.cache_tag
    return cache_dir() / f"torch-{torch.__version__}-{tag}-{digest.hexdigest()[:16]}" / "_MUSAC.so"


def is_built() -> bool:
    """Whether `load()` would find a library and build nothing."""
    return library_path().is_file()


def ensure() -> Path:
    """Build the library unless it is there, and return its path.

    Processes that come at the same time build once: the others wait for the first.

    Raises:
        SimulatorBuildError: no compiler, no headers, no place to write, or the compiler failed.
    """
    library = library_path()
    if library.is_file():
        return library
    try:
        library.parent.mkdir(parents=True, exist_ok=True)
        with _locked(library.parent / "lock"):
            if not library.is_file():
                _build(library)
    except OSError as error:
        raise SimulatorBuildError(
            f"The simulated MUSA device could not be built: {error}. It is compiled once into {library.parent}; "
            "make that directory writable, or set TORCHADA_SIM_CACHE to one that is."
        ) from error
    return library


def load() -> ModuleType:
    """Build the library if needed and return it as the module `torch_musa._MUSAC`.

    Raises:
        SimulatorBuildError: as `ensure()`.
        ValueError: a `TORCHADA_SIM_...` variable has a value the device does not understand.
    """
    loaded = sys.modules.get(MODULE_NAME)
    if loaded is not None:
        return loaded
    import torch  # noqa: F401  (the library needs torch's libraries in the process)

    path = str(ensure())
    loader = importlib.machinery.ExtensionFileLoader(MODULE_NAME, path)
    spec = importlib.util.spec_from_file_location(MODULE_NAME, path, loader=loader)
    assert spec is not None  # a loader is given
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    sys.modules[MODULE_NAME] = module
    return module


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    # The lock belongs to the open file: it goes with the process, however that ends.
    with open(path, "a") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield


def _torch_version() -> tuple[int, int]:
    import torch

    major, minor = torch.__version__.split(".")[:2]
    return int(major), int(minor)


def _flags() -> list[str]:
    import torch

    # From 2.12 on torch's headers need C++20.
    standard = "c++20" if _torch_version() >= (2, 12) else "c++17"
    abi = int(torch.compiled_with_cxx11_abi())
    return [
        f"-std={standard}",
        "-O1",  # twice as quick to build as -O2; the time goes into PyTorch's kernels anyway
        "-fPIC",
        "-w",
        "-DNDEBUG",
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={abi}",
    ]


def _compiler() -> list[str]:
    own = os.environ.get("CXX", "")
    try:
        asked = shlex.split(own)  # may be several words: "ccache g++"
    except ValueError:
        asked = [own]  # an open quotation mark names no program either
    for command in [asked] if asked else (["c++"], ["g++"], ["clang++"]):
        if shutil.which(command[0]):
            return command
    missing = f"CXX={own!r} names none that is there" if asked else "there is none (looked for c++, g++ and clang++)"
    raise SimulatorBuildError(
        f"The simulated MUSA device has to be compiled once by a C++ compiler, and {missing}. Install one, for "
        "example with 'apt-get install g++' or 'conda install gxx', and name it in CXX if it has an unusual name."
    )


def _include_flags() -> list[str]:
    import torch

    root = Path(torch.__file__).parent / "include"
    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise SimulatorBuildError(
            "The simulated MUSA device has to be compiled once, and the headers of this Python are missing "
            f"({python / 'Python.h'}). Install them, for example with 'apt-get install python3-dev'."
        )
    if not (root / "torch" / "csrc" / "api" / "include").is_dir():
        raise SimulatorBuildError(
            f"The simulated MUSA device has to be compiled once, and the headers of torch are missing ({root}). "
            "Install torch from a wheel of pytorch.org or PyPI."
        )
    return [f"-isystem{root}", f"-isystem{root / 'torch' / 'csrc' / 'api' / 'include'}", f"-I{python}"]


def _jobs() -> int:
    asked = os.environ.get("MAX_JOBS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return min(2, os.cpu_count() or 1)  # a job takes up to 1 GB of memory


def _run(command: list[str], what: str) -> None:
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()][:8]
        detail = "\n".join(errors or result.stderr.splitlines()[-8:])
        raise SimulatorBuildError(
            f"The simulated MUSA device could not be built: {what} failed (exit status {result.returncode}).\n"
            f"command: {shlex.join(command)}\n{detail}"
        )


def _build(library: Path) -> None:
    import torch

    for left in library.parent.glob("build-*"):  # of builds that were killed; we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    compiler = _compiler()
    includes = _include_flags()
    flags = _flags()
    start = time.monotonic()
    note = f"torchada: building the simulated MUSA device (once, about {EXPECTED_SECONDS} s) ..."
    print(note, end="", file=sys.stderr, flush=True)
    try:
        with tempfile.TemporaryDirectory(dir=library.parent, prefix="build-") as work:
            with concurrent.futures.ThreadPoolExecutor(_jobs()) as pool:
                jobs = []
                for name in SOURCES:
                    target = str(Path(work, name).with_suffix(".o"))
                    command = [*compiler, *flags, *includes, "-c", str(SOURCE_DIR / name), "-o", target]
                    jobs.append(pool.submit(_run, command, f"compiling {name}"))
                try:
                    for job in concurrent.futures.as_completed(jobs):
                        job.result()
                except BaseException:
                    pool.shutdown(cancel_futures=True)
                    raise
            libraries = Path(torch.__file__).parent / "lib"
            objects = [str(Path(work, name).with_suffix(".o")) for name in SOURCES]
            finished = Path(work, library.name)
            link = [*compiler, "-shared", *objects, "-o", str(finished), f"-L{libraries}"]
            link += ["-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
            _run(link, "linking")
            os.replace(finished, library)
    except BaseException:
        print(" failed", file=sys.stderr, flush=True)
        raise
    print(f" done in {time.monotonic() - start:.0f} s", file=sys.stderr, flush=True)
