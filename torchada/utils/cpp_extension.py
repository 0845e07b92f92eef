"""``torch.utils.cpp_extension``, and where the headers for code of torch's stable ABI lie.

Every name of torch's module is here, and is torch's own object: on a MUSA machine the objects themselves build for
MUSA, elsewhere they are as torch made them.
"""

from __future__ import annotations

from typing import Any

import torch.utils.cpp_extension as _torch

from .. import toolkit
from ..extensions.stable import stable_compat_box_header, stable_compat_include_dir

__all__ = [  # noqa: F822 (most are torch's, asked for below)
    "CUDA_HOME",
    "BuildExtension",
    "CUDAExtension",
    "CppExtension",
    "include_paths",
    "library_paths",
    "load",
    "load_inline",
    "stable_compat_box_header",
    "stable_compat_include_dir",
]


def __getattr__(name: str) -> Any:
    try:
        value = getattr(_torch, name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
    # A CPU build of torch looks for no toolkit.
    return toolkit.CUDA_HOME if name == "CUDA_HOME" and value is None else value


def __dir__() -> list[str]:
    return sorted({*globals(), *dir(_torch)})
