"""Quantization."""

from . import nn, register_helper  # noqa: F401
