"""Modules for quantization."""

from . import intrinsic  # noqa: F401
