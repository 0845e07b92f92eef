"""Quantized fused modules."""

from . import modules  # noqa: F401
from .modules import ConvAddSiLU2d, ConvSiLU2d

__all__ = ["ConvAddSiLU2d", "ConvSiLU2d"]
