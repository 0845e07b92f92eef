"""Building C++ extensions, finding wrong operators, and the vendor's porting tools."""

from .._late import lazily

_LATE = {
    "BuildExtension": (".musa_extension", "BuildExtension"),
    "MUSAExtension": (".musa_extension", "MUSAExtension"),
    **{
        name: (f".{name}", None)
        for name in (
            "cmake_lists_generator",
            "compare_tool",
            "ext_loader",
            "logger_util",
            "musa_converter",
            "musa_extension",
            "musify_text",
            "simple_porting",
            "simple_porting_via_musify",
        )
    },
}

__getattr__, __dir__ = lazily(__name__, _LATE)
