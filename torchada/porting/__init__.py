"""The source porter: C++ and CUDA sources to MUSA (``python -m torchada port``)."""

from .port import Change, Ported, Porter, Problem

__all__ = ["Change", "Ported", "Porter", "Problem"]
