"""The source porter: C++ and CUDA sources to MUSA (``python -m torchada port``)."""

from .changes import Change, Ported, Problem
from .journal import PortError
from .port import Porter, ptx_mode

__all__ = ["Change", "PortError", "Ported", "Porter", "Problem", "ptx_mode"]
