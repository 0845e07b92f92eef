"""A convolution with what follows it as one module: in float, for training, and quantized."""

from . import modules, qat, quantized  # noqa: F401
from .modules import ConvAddSiLU2d, ConvBnSiLU2d, ConvSiLU2d

__all__ = ["ConvAddSiLU2d", "ConvBnSiLU2d", "ConvSiLU2d"]
