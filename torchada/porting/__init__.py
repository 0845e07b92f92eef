"""The source porter: C++ and CUDA sources to MUSA (``python -m torchada port``)."""

from .journal import PortError
from .port import Change, Ported, Porter, Problem, ptx_mode

__all__ = ["Change", "PortError", "Ported", "Porter", "Problem", "ptx_mode"]
