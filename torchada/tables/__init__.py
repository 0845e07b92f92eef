"""The rows. Data only: literals and constructor calls."""

from .bindings import RULES as _BINDINGS
from .cuda import RULES as _CUDA
from .mirrors import MIRRORS
from .native import RULES as _NATIVE
from .torch import RULES as _TORCH

__all__ = ["MIRRORS", "RULES"]

RULES = (*_TORCH, *_CUDA, *_BINDINGS, *_NATIVE)
