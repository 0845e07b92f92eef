"""Quantized modules; not simulated yet."""

from ...._not_simulated import absent

__getattr__ = absent(__name__, {"intrinsic"}, "quantized modules")
