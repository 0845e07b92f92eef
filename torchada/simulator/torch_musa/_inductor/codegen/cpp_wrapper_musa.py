"""The C++ wrapper for kernels of the device."""

from .cpp_wrapper_cpu import CppWrapperMusa
from .wrapper import MUSATritonWrapperCodeGen

__all__ = ["CppWrapperMusa", "MUSACppWrapper", "MUSATritonWrapperCodeGen"]


class MUSACppWrapper(CppWrapperMusa):
    """Writes C++ code that allocates and launches."""
