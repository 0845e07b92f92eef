"""What it takes to compile against the installed torch: its facts, read from its files, and a compiler.

Nothing here imports torch, so that a build can run before torch's own code does.
"""

from __future__ import annotations

import contextlib
import fcntl
import importlib.machinery
import importlib.util
import io
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "DEVICE",
    "Progress",
    "SimulatorBuildError",
    "Step",
    "Torch",
    "compile_flags",
    "compiler",
    "extra_flags",
    "find_torch",
    "include_flags",
    "lock_file",
    "run",
    "torch_headers",
    "user_cache",
]

DEVICE = "The simulated MUSA device"


class SimulatorBuildError(RuntimeError):
    """The simulated device, or something else that is compiled on demand, could not be built. The text says what to
    install or to change."""


_lock_files: weakref.WeakSet[io.FileIO] = weakref.WeakSet()


@contextlib.contextmanager
def lock_file(path: Path) -> Iterator[io.FileIO]:
    """The file of an flock, which the caller takes. The lock belongs to the open file, and that to this process alone:
    a child forked meanwhile (a loader's worker, say) gives its copy up, or it would hold the lock when this process is
    killed. Programs that are started do not inherit it."""
    with open(path, "ab", buffering=0) as file:
        _lock_files.add(file)
        try:
            yield file
        finally:
            with contextlib.suppress(OSError):  # a file system without locks
                fcntl.flock(file, fcntl.LOCK_UN)  # for all copies: a child may be on its way


def _close_lock_files() -> None:
    for file in list(_lock_files):
        file.close()


os.register_at_fork(after_in_child=_close_lock_files)


@dataclass(frozen=True)
class Torch:
    """The torch that `import torch` gives or would give: its directory, its version and what identifies the build."""

    root: Path
    version: str
    identity: bytes  # torch/version.py; two builds of one version differ in it

    def at_least(self, major: int, minor: int) -> bool:
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return found is None or (int(found[1]), int(found[2])) >= (major, minor)

    def pybind_flags(self) -> list[str]:
        """What pybind11 must take for its ABI. Up to 2.7 its types are shared between builds by one compiler only,
        unless that is said."""
        with contextlib.suppress(FileNotFoundError):
            library = (self.root / "lib" / "libtorch_python.so").read_bytes()
            if found := re.search(rb"__pybind11_internals_v\d+(_[a-z]+)(_[a-z]+)(_cxxabi\d+)__", library):
                names = ("COMPILER_TYPE", "STDLIB", "BUILD_ABI")
                return [
                    f'-DPYBIND11_{name}="{value.decode()}"' for name, value in zip(names, found.groups(), strict=True)
                ]
        return []

    @property
    def cxx11_abi(self) -> bool:
        """Whether torch was compiled with the std::string of C++11, as its wheels are since 2.7."""
        try:
            return b"__cxx1112basic_string" in (self.root / "lib" / "libc10.so").read_bytes()
        except FileNotFoundError:
            return True  # `include_flags` tells of a torch without its parts


@dataclass(frozen=True)
class Step:
    """One command of a build, and what it does, for an error."""

    command: list[str]
    what: str
    directory: Path | None = None  # where it runs
    product: str = DEVICE  # what it is for, for an error


def find_torch(product: str = DEVICE) -> Torch:
    """Find the installed torch without importing it. Errors say that *product* needs it.

    Raises SimulatorBuildError when there is none, or one that is too old or whose version cannot be read.
    """
    loaded = sys.modules.get("torch")
    file = getattr(loaded, "__file__", None)
    if file is None:
        spec = importlib.machinery.PathFinder.find_spec("torch") or importlib.util.find_spec("torch")
        file = spec.origin if spec else None
    if file is None:
        raise SimulatorBuildError(f"{product} needs torch, and there is none: pip install torch.")
    root = Path(file).parent
    try:
        identity = (root / "version.py").read_bytes()
    except OSError as error:
        raise SimulatorBuildError(f"{product} cannot tell the version of torch: {error}.") from error
    version = re.search(rb"""^__version__\s*(?::[^=\n]+)?=\s*['"]([^'"]+)""", identity, re.MULTILINE)
    if version is None:
        raise SimulatorBuildError(f"{product} finds no version of torch in {root / 'version.py'}.")
    torch = Torch(root, version[1].decode(), identity)
    if not torch.at_least(2, 7):
        raise SimulatorBuildError(f"{product} needs torch 2.7 or later; {torch.version} is installed.")
    return torch


def user_cache(instead: str) -> Path:
    """torchada's part of the user's cache directory. Without a home directory, an error that names *instead*, the
    variable that says where else to build.
    """
    base = os.environ.get("XDG_CACHE_HOME")
    if not (base and os.path.isabs(base)):  # a relative one is not valid, says the XDG specification
        try:
            base = str(Path.home() / ".cache")
        except RuntimeError as error:  # no HOME, and a user that the system does not know: usual in containers
            raise SimulatorBuildError(
                f"{error} Set {instead} to a directory that can be written, or HOME to that of the user."
            ) from error
    return Path(base) / "torchada"


def extra_flags() -> list[str]:
    """`TORCHADA_SIM_CXXFLAGS`: flags for compiling and linking, for example of a sanitizer."""
    text = os.environ.get("TORCHADA_SIM_CXXFLAGS", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SimulatorBuildError(f"TORCHADA_SIM_CXXFLAGS={text!r} cannot be split into flags: {error}.") from error


def compile_flags(torch: Torch, more: Sequence[str] | None = None) -> list[str]:
    """The flags that say what the objects are like; they are part of a library's key. *more* in the place of
    `extra_flags()`."""
    # From 2.12 on torch's headers need C++20.
    standard = "c++20" if torch.at_least(2, 12) else "c++17"
    return [
        f"-std={standard}",
        "-O1",  # twice as quick to build as -O2; the time goes into PyTorch's kernels anyway
        "-fPIC",
        "-pipe",  # a killed build leaves no temporary files
        "-w",
        "-DNDEBUG",
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        *(extra_flags() if more is None else more),
    ]


def include_flags(torch: Torch) -> list[str]:
    import sysconfig  # only for a build

    python = Path(sysconfig.get_paths()["include"])
    if not (python / "Python.h").is_file():
        raise SimulatorBuildError(
            "The simulated MUSA device has to be compiled once, and the headers of this Python are missing "
            f"({python / 'Python.h'}). Install them, for example with 'apt-get install python3-dev'."
        )
    return [*torch_headers(torch), f"-I{python}"]


def torch_headers(torch: Torch, product: str = DEVICE) -> list[str]:
    """The flags that find torch's headers."""
    root = torch.root / "include"
    if not (root / "torch" / "csrc" / "api" / "include").is_dir():
        raise SimulatorBuildError(
            f"{product} has to be compiled once, and the headers of torch are missing ({root}). "
            "Install torch from a wheel of pytorch.org or PyPI."
        )
    return [f"-isystem{root}", f"-isystem{root / 'torch' / 'csrc' / 'api' / 'include'}"]


def compiler(product: str = DEVICE) -> list[str]:
    """The command of the C++ compiler: `CXX`, which may be several words, or the first that is there."""
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
        f"{product} has to be compiled once by a C++ compiler, and {missing}. Install one, for "
        "example with 'apt-get install g++' or 'conda install gxx', and name it in CXX if it has an unusual name."
    )


class Progress:
    """Tells how a build goes, in one line on stderr: kept up to date on a terminal, begun and ended elsewhere."""

    def __init__(self, what: str, seconds: int, total: int) -> None:
        self.total = total
        self.note = f"torchada: building {what} (once, about {seconds} s)"
        self.start = time.monotonic()
        self.terminal = sys.stderr.isatty()
        if not self.terminal:
            self._write(f"{self.note} ...")

    def _write(self, text: str) -> None:
        sys.stderr.write(text)
        sys.stderr.flush()

    def __call__(self, done: int) -> None:
        if self.terminal:
            self._write(f"\r\033[K{self.note}: {done} of {self.total} steps, {time.monotonic() - self.start:.0f} s")

    def end(self, how: str) -> None:
        self._write(f"\r\033[K{self.note}: {how}\n" if self.terminal else f" {how}\n")


def run(steps: Sequence[Step], jobs: int, progress: Callable[[int], None]) -> None:
    """Run commands, *jobs* at a time, and call *progress* with the number of finished ones, at least once a second.

    Raises SimulatorBuildError with the compiler's own errors. However this ends, no command is left running, unless
    this process is killed by a signal that it cannot handle.
    """
    from concurrent.futures import FIRST_COMPLETED, ThreadPoolExecutor, wait

    stop = threading.Event()
    running: list[subprocess.Popen[str]] = []

    def work(step: Step) -> None:
        if stop.is_set():
            return
        # A process group of its own: a compiler has children, and Ctrl-C is ours to pass on. It is started here, in a
        # thread, because Ctrl-C interrupts the main thread anywhere, also between a start and its being noted.
        process = subprocess.Popen(
            step.command,
            cwd=step.directory,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
        )
        running.append(process)
        if stop.is_set():
            _kill(process)
        output = process.communicate()[0]
        running.remove(process)
        if not stop.is_set():
            _check(step, process.returncode, output)

    with ThreadPoolExecutor(jobs) as pool:
        try:
            pending = {pool.submit(work, step) for step in steps}
            while pending:
                progress(len(steps) - len(pending))
                done, pending = wait(pending, timeout=1, return_when=FIRST_COMPLETED)
                for future in done:
                    future.result()
        finally:
            stop.set()
            for process in list(running):
                _kill(process)


def _kill(process: subprocess.Popen[str]) -> None:
    with contextlib.suppress(ProcessLookupError):  # it has just ended
        os.killpg(process.pid, signal.SIGKILL)


def _check(step: Step, status: int, output: str) -> None:
    if status != 0:
        lines = output.splitlines()
        detail = "\n".join([line for line in lines if "error" in line.lower()][:8] or lines[-8:])
        raise SimulatorBuildError(
            f"{step.product} could not be built: {step.what} failed (exit status {status}).\n"
            f"command: {shlex.join(step.command)}\n{detail}"
        )
