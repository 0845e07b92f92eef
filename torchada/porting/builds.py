"""What the files that build a project say of NVIDIA's architectures: nothing is changed there, but it is told."""

from __future__ import annotations

import re

from .changes import Problem

NAMES = frozenset(("setup.py", "pyproject.toml", "setup.cfg", "CMakeLists.txt", "Makefile", "makefile", "GNUmakefile"))
SUFFIXES = (".cmake", ".mk")
WHY = "NVIDIA's architectures: TORCH_MUSA_ARCH_LIST names MUSA's (31 for mp_31), and torchada's builds drop these flags"
ARCHITECTURES = re.compile(
    r"\b(?:TORCH_CUDA_ARCH_LIST|CMAKE_CUDA_ARCHITECTURES|CUDA_ARCHITECTURES|CUDAARCHS|(?:compute|sm)_\d{2,3}[af]?)\b"
)


def is_build_file(path: str) -> bool:
    """Whether the file *path* tells how to build a project."""
    name = path.rpartition("/")[2]
    return name in NAMES or name.endswith(SUFFIXES)


def notes(text: str) -> list[Problem]:
    """A note for the first line of *text* that has each way to name NVIDIA's architectures, comments left out."""
    found: dict[str, Problem] = {}
    for number, line in enumerate(text.splitlines(), 1):
        for match in ARCHITECTURES.finditer(line.partition("#")[0]):
            found.setdefault(match[0].rstrip("0123456789af"), Problem(number, match[0], WHY, note=True))
    return list(found.values())
