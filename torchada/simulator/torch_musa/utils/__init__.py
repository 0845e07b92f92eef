"""Building C++ extensions, and the vendor's porting tools."""

from .._not_simulated import absent
from .musa_extension import BuildExtension, MUSAExtension

__all__ = ["BuildExtension", "MUSAExtension"]

__getattr__ = absent(
    __name__,
    {
        "cmake_lists_generator",
        "compare_tool",
        "logger_util",
        "musa_converter",
        "musify_text",
        "simple_porting",
        "simple_porting_via_musify",
    },
    "vendor porting tools",
)
