"""What a function of a CUDA library is called in its MUSA counterpart (the rows: ``tables/names.py``)."""

from __future__ import annotations

import os
import re

from .tables.names import FUNCTIONS, IRREGULAR, LIBRARIES, UNLIKE, WITHIN

__all__ = [
    "counterpart_file",
    "cublas_to_mublas_name",
    "cuda_to_musa_name",
    "curand_to_murand_name",
    "is_musa_library",
    "musa_name",
    "nccl_to_mccl_name",
]

_PATTERNS = {family: (re.compile(pattern), to) for family, (pattern, to) in FUNCTIONS.items()}
_FILE = re.compile(r"^lib(\w+?)(-[0-9a-f]{6,})?\.so(\.[\d.]+)?$")  # wheels add a hash to the names of their libraries
_MUSA_LIBRARIES = frozenset(LIBRARIES.values())


def musa_name(name: str, *families: str) -> str:
    """The MUSA name of a CUDA library function; *name* itself where it is none of *families* (of any, if not given)."""
    if name in UNLIKE:
        return name
    for family in families or _PATTERNS:
        pattern, to = _PATTERNS[family]
        start = pattern.match(name)
        if start:
            if name in IRREGULAR:
                return IRREGULAR[name]
            rest = name[start.end() :]
            for old, new in WITHIN:
                rest = rest.replace(old, new)
            return start.expand(to) + rest
    return name


def cuda_to_musa_name(name: str) -> str:
    """``cudaMalloc`` -> ``musaMalloc``, ``cuMemAlloc`` -> ``muMemAlloc``; other names come back as they are."""
    return musa_name(name, "cuda", "driver")


def nccl_to_mccl_name(name: str) -> str:
    """``ncclAllReduce`` -> ``mcclAllReduce``; other names come back as they are."""
    return musa_name(name, "nccl")


def cublas_to_mublas_name(name: str) -> str:
    """``cublasSgemm_v2`` -> ``mublasSgemm_v2``; other names come back as they are."""
    return musa_name(name, "cublas")


def curand_to_murand_name(name: str) -> str:
    """``curandGenerate`` -> ``murandGenerate``; other names come back as they are."""
    return musa_name(name, "curand")


def is_musa_library(file: str | bytes | os.PathLike[str] | None) -> bool:
    """Whether a file name, with or without directory, is that of a MUSA library: ``/opt/lib/libmusart.so.4``."""
    match = _FILE.match(os.path.basename(os.fsdecode(file))) if file else None
    return match is not None and match.group(1) in _MUSA_LIBRARIES


def counterpart_file(file: str) -> str | None:
    """``libcudart.so.12`` -> ``libmusart.so``; None where *file* is no CUDA library with a counterpart."""
    match = _FILE.match(os.path.basename(file))
    other = LIBRARIES.get(match.group(1)) if match else None
    return f"lib{other}.so" if other else None
