"""Building the operator overrides: ``torchada/ops/csrc``, compiled on first use and kept.

Cache. The library lies in ``torchada_cpp_ops/<cache tag>/`` of the user's cache directory. The tag names what the
library depends on: MUSA architectures and version, torch, flags and sources. The compiler is not in it, so a cache
directory may be copied to machines without one. A build works in a directory of its own and renames the finished
library into place; the lock is the operating system's and goes with the process that holds it. So a build that is
killed leaves nothing that a later one could trip over, and processes that come at the same time build once.

Nothing here imports torch.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shlex
import shutil
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from ..arch import MusaArch, cache_tag, target_archs
from ..errors import TorchadaError, TorchadaWarning
from ..platform import env_flag
from ..simulator import toolchain
from ..simulator.toolchain import Progress, SimulatorBuildError, Step

__all__ = ["OpsBuildError", "cache_dir", "ensure", "library_path"]

ARCH_VARIABLE = "MTGPU_TARGET"
SOURCE = Path(__file__).resolve().parent / "csrc" / "overrides.cpp"
LIBRARY = "overrides.so"
SECONDS = 30  # about what a build takes
_PRODUCT = "The library of operator overrides"


class OpsBuildError(TorchadaError, RuntimeError):
    """The overrides could not be built. The text says what to install or to change."""


def cache_dir() -> Path:
    """The directory that holds what is built: ``torchada_cpp_ops``, in ``TORCH_EXTENSIONS_DIR`` (where torch builds its
    own extensions) if set, else in torchada's part of the user's cache directory."""
    own = os.environ.get("TORCH_EXTENSIONS_DIR")
    if own:
        return Path(own).expanduser() / "torchada_cpp_ops"
    try:
        return toolchain.user_cache("TORCH_EXTENSIONS_DIR") / "torchada_cpp_ops"
    except SimulatorBuildError as error:
        raise OpsBuildError(str(error)) from error


def library_path() -> Path:
    """Where the library for these architectures, this torch and these sources is, or will be."""
    return _path(target_archs((ARCH_VARIABLE,)), _torch())


def _path(archs: tuple[MusaArch, ...], torch: toolchain.Torch) -> Path:
    digest = hashlib.sha256(repr((toolchain.compile_flags(torch, ()), sys.platform)).encode())
    digest.update(torch.identity)
    digest.update(SOURCE.read_bytes())
    return cache_dir() / f"{cache_tag(archs)}-torch{torch.version}-{digest.hexdigest()[:16]}" / LIBRARY


def _torch() -> toolchain.Torch:
    try:
        return toolchain.find_torch(_PRODUCT)
    except SimulatorBuildError as error:
        raise OpsBuildError(str(error)) from error


@contextlib.contextmanager
def ensure() -> Iterator[Path]:
    """Build the library unless it is there. Its path holds inside the block; load it there.

    ``TORCHADA_CPP_OPS_VERBOSE=1`` tells on stderr what is done.

    Raises:
        OpsBuildError: no torch, no compiler, no headers, no place to write, or the compiler failed.
        ValueError: ``MTGPU_TARGET`` names something that is no architecture.
        ConfigError: ``TORCHADA_CPP_OPS_VERBOSE`` is neither yes nor no.
    """
    torch = _torch()
    archs = target_archs((ARCH_VARIABLE,))
    path = _path(archs, torch)
    _say(f"operator overrides for {', '.join(map(str, archs))}: {path}")
    if path.is_file():
        yield path
        return
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        with _elsewhere(path, torch, error) as built:
            yield built
        return
    with _locked(path.parent / "lock") as alone:
        if not path.is_file():
            if alone:
                for left in path.parent.glob("build-*"):  # of builds that were killed; we hold the lock
                    shutil.rmtree(left, ignore_errors=True)
            _build(path.parent, path, torch)
    yield path


@contextlib.contextmanager
def _elsewhere(path: Path, torch: toolchain.Torch, reason: OSError) -> Iterator[Path]:
    """A cache that cannot be written: a build for this process alone."""
    warnings.warn(
        f"torchada cannot keep the operator overrides it builds ({reason}); this process builds its own. "
        f"Make {path.parent} writable, or set XDG_CACHE_HOME or TORCH_EXTENSIONS_DIR to a directory that is.",
        TorchadaWarning,
        stacklevel=4,
    )
    with tempfile.TemporaryDirectory(prefix="torchada_cpp_ops-") as own:
        built = Path(own, LIBRARY)
        _build(Path(own), built, torch)
        yield built


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[bool]:
    """Alone in *path*'s directory; or with False, where the file system has no locks."""
    with toolchain.lock_file(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            _say("another process is building; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            warnings.warn(
                f"the file system of {path.parent} has no flock ({error.strerror}); torchada builds its operator "
                "overrides without: processes that start at the same time may each build them",
                TorchadaWarning,
                stacklevel=5,
            )
            yield False
            return
        yield True


def _build(place: Path, path: Path, torch: toolchain.Torch) -> None:
    """Compile in a directory of its own in *place*, and rename to *path*."""
    try:
        command = [*toolchain.compiler(_PRODUCT), *toolchain.compile_flags(torch, ())]
        headers = toolchain.torch_headers(torch, _PRODUCT)
    except SimulatorBuildError as error:
        raise OpsBuildError(str(error)) from error
    progress = Progress("its operator overrides", SECONDS, 2)
    try:
        with tempfile.TemporaryDirectory(dir=place, prefix="build-") as work:
            # The source by its name alone: error texts hold it, and must not tell of this machine.
            compiled, linked = str(Path(work, "overrides.o")), str(Path(work, LIBRARY))
            libraries = [f"-L{torch.root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
            compile_it = [*command, *headers, "-c", SOURCE.name, "-o", compiled]
            link_it = [*command, "-shared", compiled, "-o", linked, *libraries]
            _say(shlex.join(compile_it))
            toolchain.run([Step(compile_it, "compiling", SOURCE.parent, _PRODUCT)], 1, progress)
            _say(shlex.join(link_it))
            toolchain.run([Step(link_it, "linking", None, _PRODUCT)], 1, lambda done: progress(done + 1))
            with open(linked, "rb") as finished:
                os.fsync(finished.fileno())  # a name in the cache must never be that of half a file
            os.replace(linked, path)
    except BaseException as error:
        progress.end("interrupted" if isinstance(error, KeyboardInterrupt) else "failed")
        if isinstance(error, (SimulatorBuildError, OSError)):
            raise OpsBuildError(str(error)) from error
        raise
    progress.end("done")


def _say(text: str) -> None:
    if env_flag("TORCHADA_CPP_OPS_VERBOSE"):
        sys.stderr.write(f"torchada: {text}\n")
