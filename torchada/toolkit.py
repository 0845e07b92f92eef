"""Where the toolkit lies: MUSA's on a MUSA machine, CUDA's elsewhere."""

from __future__ import annotations

import os

from .platform import is_musa_platform

__all__ = ["CUDA_HOME"]


def toolkit_home() -> str | None:
    """What the environment names, else the usual folder where it is there, else None."""
    name = "musa" if is_musa_platform() else "cuda"
    named = os.environ.get(f"{name.upper()}_HOME") or os.environ.get(f"{name.upper()}_PATH")
    usual = f"/usr/local/{name}"
    return named or (usual if os.path.isdir(usual) else None)


CUDA_HOME = toolkit_home()
"""As ``torch.utils.cpp_extension.CUDA_HOME``: found once, when it is first asked for."""
