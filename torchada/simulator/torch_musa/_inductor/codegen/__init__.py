"""Code generation for MUSA."""

from . import cpp_utils  # noqa: F401
