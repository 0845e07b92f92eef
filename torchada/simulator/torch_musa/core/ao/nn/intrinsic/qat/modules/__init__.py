"""Fused modules for quantization-aware training."""

from .conv_fused import ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvBnSiLU2d", "ConvSiLU2d"]
