"""Fused modules in float."""

from .fused import ConvAddSiLU2d, ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvAddSiLU2d", "ConvBnSiLU2d", "ConvSiLU2d"]
