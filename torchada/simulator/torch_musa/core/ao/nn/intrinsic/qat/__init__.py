"""Fused modules for quantization-aware training."""

from . import modules  # noqa: F401
from .modules import ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvBnSiLU2d", "ConvSiLU2d"]
