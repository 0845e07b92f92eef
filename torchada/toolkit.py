"""Where the toolkit lies: MUSA's on a MUSA machine, CUDA's elsewhere."""

from __future__ import annotations

import os
import shutil

from .platform import is_musa_platform

__all__ = ["CUDA_HOME"]


def toolkit_home() -> str | None:
    """What the environment names, else where the compiler on PATH lies, else the usual folder that is there, else None.

    On a MUSA machine a ``CUDA_HOME`` counts only if it holds mcc, as it does where a program needs that name.
    """
    musa = is_musa_platform()
    name, compiler = ("musa", "mcc") if musa else ("cuda", "nvcc")
    named = os.environ.get(f"{name.upper()}_HOME") or os.environ.get(f"{name.upper()}_PATH")
    if musa and not named:
        theirs = os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or ""
        named = theirs if os.path.isfile(os.path.join(theirs, "bin", compiler)) else None
    if named:
        return named
    found = shutil.which(compiler)
    if found:
        return os.path.dirname(os.path.dirname(found))
    usual = ("/usr/local/musa", "/opt/musa") if musa else ("/usr/local/cuda",)
    return next((folder for folder in usual if os.path.isdir(folder)), None)


CUDA_HOME = toolkit_home()
"""As ``torch.utils.cpp_extension.CUDA_HOME``: found once, when it is first asked for."""
