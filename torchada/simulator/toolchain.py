"""What it takes to compile against the installed torch: its facts, read from its files, and a compiler.

Nothing here imports torch, so that a build can run before torch's own code does.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from pathlib import Path

__all__ = [
    "SimulatorBuildError",
    "Torch",
    "compile_flags",
    "compiler",
    "extra_flags",
    "find_torch",
    "include_flags",
    "run",
]


class SimulatorBuildError(RuntimeError):
    """The simulated device could not be built. The text says what to install or to change."""


@dataclass(frozen=True)
class Torch:
    """The torch that `import torch` gives or would give: its directory, its version and what identifies the build."""

    root: Path
    version: str
    identity: bytes  # torch/version.py; two builds of one version differ in it

    def at_least(self, major: int, minor: int) -> bool:
        found = re.match(r"(\d+)\.(\d+)", self.version)
        return found is None or (int(found[1]), int(found[2])) >= (major, minor)

    @property
    def cxx11_abi(self) -> bool:
        """Whether torch was compiled with the std::string of C++11, as its wheels are since 2.7."""
        try:
            return b"__cxx1112basic_string" in (self.root / "lib" / "libc10.so").read_bytes()
        except FileNotFoundError:
            return True  # `include_flags` tells of a torch without its parts


def find_torch() -> Torch:
    """Find the installed torch without importing it.

    Raises SimulatorBuildError when there is none, or one whose version cannot be read.
    """
    loaded = sys.modules.get("torch")
    file = getattr(loaded, "__file__", None)
    if file is None:
        spec = importlib.machinery.PathFinder.find_spec("torch") or importlib.util.find_spec("torch")
        file = spec.origin if spec else None
    if file is None:
        raise SimulatorBuildError("The simulated MUSA device needs torch, and there is none: pip install torch.")
    root = Path(file).parent
    try:
        identity = (root / "version.py").read_bytes()
    except OSError as error:
        raise SimulatorBuildError(f"The simulated MUSA device cannot tell the version of torch: {error}.") from error
    version = re.search(rb"""^__version__\s*(?::[^=\n]+)?=\s*['"]([^'"]+)""", identity, re.MULTILINE)
    if version is None:
        raise SimulatorBuildError(f"The simulated MUSA device finds no version of torch in {root / 'version.py'}.")
    return Torch(root, version[1].decode(), identity)


def extra_flags() -> list[str]:
    """`TORCHADA_SIM_CXXFLAGS`: flags for compiling and linking, for example of a sanitizer."""
    text = os.environ.get("TORCHADA_SIM_CXXFLAGS", "")
    try:
        return shlex.split(text)
    except ValueError as error:
        raise SimulatorBuildError(f"TORCHADA_SIM_CXXFLAGS={text!r} cannot be split into flags: {error}.") from error


def compile_flags(torch: Torch) -> list[str]:
    """The flags that say what the objects are like; they are part of a library's key."""
    # From 2.12 on torch's headers need C++20.
    standard = "c++20" if torch.at_least(2, 12) else "c++17"
    return [
        f"-std={standard}",
        "-O1",  # twice as quick to build as -O2; the time goes into PyTorch's kernels anyway
        "-fPIC",
        "-w",
        "-DNDEBUG",
        "-DAT_PER_OPERATOR_HEADERS",
        f"-D_GLIBCXX_USE_CXX11_ABI={int(torch.cxx11_abi)}",
        *extra_flags(),
    ]


def include_flags(torch: Torch) -> list[str]:
    root = torch.root / "include"
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


def compiler() -> list[str]:
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
        f"The simulated MUSA device has to be compiled once by a C++ compiler, and {missing}. Install one, for "
        "example with 'apt-get install g++' or 'conda install gxx', and name it in CXX if it has an unusual name."
    )


def run(command: list[str], what: str) -> None:
    """Run one step of a build. Raises SimulatorBuildError with the compiler's own errors."""
    result = subprocess.run(command, capture_output=True, text=True, check=False)
    if result.returncode != 0:
        errors = [line for line in result.stderr.splitlines() if "error" in line.lower()][:8]
        detail = "\n".join(errors or result.stderr.splitlines()[-8:])
        raise SimulatorBuildError(
            f"The simulated MUSA device could not be built: {what} failed (exit status {result.returncode}).\n"
            f"command: {shlex.join(command)}\n{detail}"
        )
