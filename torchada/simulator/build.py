"""Building the simulated MUSA device: `torchada/simulator/csrc`, compiled on first use and kept.

Libraries. `LIBRARIES` says which there are: `_MUSAC`, the device itself, and optional ones that are built and loaded
only when something asks for them: `build.load("_DIST")` gives the module `torch_musa._DIST`, whose source defines
`PyInit__DIST`. An optional library is linked against `_MUSAC` and may call every function that a header in csrc
declares. Each has a key of its own: its sources, all headers, the flags, torch and Python. So a change in one
library's sources builds that library anew and no other; a change in a header, all.

Cache. A library lies in a directory named by its key below `cache_dir()`, and refers to no path of the machine that
built it: the whole cache directory may be copied to other machines with the same torch and Python, and may be
read-only there. A build works in a directory of its own and renames the finished library into place, so a killed
build leaves nothing that a later one could trip over; the lock goes with the process that held it. After a build,
libraries with other keys that nothing has used for 30 days are removed.

Nothing here imports torch, except `load()`.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from . import toolchain
from .toolchain import Progress, SimulatorBuildError, Step

__all__ = ["LIBRARIES", "Library", "SimulatorBuildError", "cache_dir", "ensure", "is_built", "library_path", "load"]

PACKAGE = "torch_musa"
MAIN = "_MUSAC"
KEEP_SECONDS = 30 * 24 * 3600
SOURCE_DIR = Path(__file__).resolve().parent / "csrc"
_loading = threading.RLock()
SOURCES = (
    "fallback.cpp",  # the longest first, so that two jobs end together
    "autocast.cpp",
    "kernels.cpp",
    "deferred.cpp",
    "work.cpp",
    "ops.cpp",
    "defects.cpp",
    "graph.cpp",
    "musart.cpp",
    "runtime.cpp",
    "module.cpp",
    "module_work.cpp",
    "module_memory.cpp",
    "history.cpp",
    "allocator.cpp",
    "arena.cpp",
    "host_allocator.cpp",
    "ipc.cpp",
    "objects.cpp",
    "inductor.cpp",
    "profiler.cpp",
    "profile.cpp",
)


@dataclass(frozen=True)
class Library:
    """One shared library, which is also a Python module: what it is made of and how."""

    what: str  # for the line that tells of the build
    sources: tuple[str, ...]
    seconds: int  # about what a build takes on two cores
    flags: tuple[str, ...] = ()  # for compiling, besides those of every library
    link: tuple[str, ...] = ()  # for linking, besides torch's libraries (and `_MUSAC`, for an optional library)


LIBRARIES = {
    "_MUSAC": Library(
        what="the simulated MUSA device",
        sources=SOURCES,
        seconds=60,
    ),
    "_MCCL": Library(
        what="the process group of the simulated MUSA device",
        sources=("dist.cpp",),
        seconds=20,
        flags=("-DUSE_DISTRIBUTED",),
    ),
}


def cache_dir() -> Path:
    """The directory that holds every built library.

    `TORCHADA_SIM_CACHE` if set, else `torchada/simulator` in the user's cache directory.
    """
    own = os.environ.get("TORCHADA_SIM_CACHE")
    if own:
        return Path(own).expanduser()
    return toolchain.user_cache("TORCHADA_SIM_CACHE") / "simulator"


def library_path(name: str = MAIN) -> Path:
    """Where a library for this torch, this Python and these sources is, or will be."""
    library, torch = LIBRARIES[name], toolchain.find_torch()
    digest = hashlib.sha256(repr((name, library, toolchain.compile_flags(torch), sys.platform)).encode())
    digest.update(torch.identity)
    for path in sorted(SOURCE_DIR.iterdir()):
        if path.suffix == ".h" or path.name in library.sources:
            digest.update(path.name.encode() + b"\0" + path.read_bytes() + b"\0")
    tag = importlib.machinery.EXTENSION_SUFFIXES[0].strip(".").removesuffix(".so")  # sysconfig's takes 5 ms to load
    return cache_dir() / f"torch-{torch.version}-{tag}-{digest.hexdigest()[:16]}" / f"{name}.so"


def is_built(name: str = MAIN) -> bool:
    """Whether `load(name)` would find a library and build nothing."""
    return library_path(name).is_file()


def ensure(name: str = MAIN) -> Path:
    """Build a library (and `_MUSAC`, which the others need) unless it is there, and return its path.

    Processes that come at the same time build once: the others wait for the first.

    Raises:
        KeyError: no library has this name.
        SimulatorBuildError: no torch, no compiler, no headers, no place to write, or the compiler failed.
    """
    path = library_path(name)
    against = () if name == MAIN else (str(ensure()),)
    if path.is_file():
        return path
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with _locked(path.parent / "lock"):
            if not path.is_file():
                _build(LIBRARIES[name], path, against)
                _remove_unused(path.parent)
    except OSError as error:
        raise SimulatorBuildError(
            f"The simulated MUSA device could not be built: {error}. It is compiled once into {path.parent}; "
            "make that directory writable, or set TORCHADA_SIM_CACHE to one that is."
        ) from error
    return path


def load(name: str = MAIN) -> ModuleType:
    """Build a library if needed and return it as the module `torch_musa.<name>`, always the same one.

    Raises:
        KeyError, SimulatorBuildError: as `ensure()`.
        ValueError: a `TORCHADA_SIM_...` variable has a value the device does not understand.
    """
    full = f"{PACKAGE}.{name}"
    with _loading:
        loaded = sys.modules.get(full)
        if loaded is not None:
            return loaded
        path = str(ensure(name))
        with contextlib.suppress(OSError):  # a cache that is only read
            os.utime(os.path.dirname(path))  # used today
        import torch  # noqa: F401  (the library needs torch's libraries in the process)

        if name != MAIN:
            load()  # it is in the process now, and the dynamic linker finds it there by its name
        loader = importlib.machinery.ExtensionFileLoader(full, path)
        spec = importlib.util.spec_from_file_location(full, path, loader=loader)
        assert spec is not None  # a loader is given
        module = importlib.util.module_from_spec(spec)
        loader.exec_module(module)
        sys.modules[full] = module
        return module


def _remove_unused(current: Path) -> None:
    """Remove what earlier versions have built, if nothing has loaded it for long. Touches no file of anybody else."""
    limit = time.time() - KEEP_SECONDS
    for directory in current.parent.glob("torch-*-" + "[0-9a-f]" * 16):
        if directory != current and directory.stat().st_mtime < limit:
            for file in [directory / "lock", *directory.glob("_*.so")]:
                file.unlink(missing_ok=True)
            with contextlib.suppress(OSError):  # something else is in it
                directory.rmdir()


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    with toolchain.lock_file(path) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _jobs() -> int:
    asked = os.environ.get("MAX_JOBS", "")
    if asked.isdigit() and int(asked) > 0:
        return int(asked)
    return min(2, os.cpu_count() or 1)  # a job takes up to 1 GB of memory


def _build(library: Library, path: Path, against: tuple[str, ...]) -> None:
    for left in path.parent.glob("build-*"):  # of builds that were killed; we hold the lock
        shutil.rmtree(left, ignore_errors=True)
    torch = toolchain.find_torch()
    compiler = toolchain.compiler()
    flags = [*toolchain.compile_flags(torch), *library.flags, *torch.pybind_flags(), *toolchain.include_flags(torch)]
    progress = Progress(library.what, library.seconds, len(library.sources) + 1)
    try:
        with tempfile.TemporaryDirectory(dir=path.parent, prefix="build-") as work:
            steps, objects = [], []
            for name in library.sources:
                objects.append(str(Path(work, name).with_suffix(".o")))
                # A name without a path: error texts of the device hold it, and must not tell of this machine.
                command = [*compiler, *flags, "-c", name, "-o", objects[-1]]
                steps.append(Step(command, f"compiling {name}", SOURCE_DIR))
            toolchain.run(steps, _jobs(), progress)
            finished = Path(work, path.name)
            # The name is what other libraries refer to: a path would not survive a move of the cache.
            link = [*compiler, "-shared", f"-Wl,-soname,{path.name}", *objects, "-o", str(finished)]
            link += [*against, f"-L{torch.root / 'lib'}", "-ltorch_python", "-ltorch", "-ltorch_cpu", "-lc10"]
            link += [*library.link, *toolchain.extra_flags()]
            toolchain.run([Step(link, "linking")], 1, lambda done: progress(done + len(steps)))
            os.replace(finished, path)
    except BaseException as error:
        progress.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        raise
    progress.end(f"done in {time.monotonic() - progress.start:.0f} s")
