"""Dynamo's variables for torch_musa. They load when they are asked for: torch's own load in an order of their own."""

import importlib

_MODULES = ("ctx_manager", "torch")


def __getattr__(name):
    if name in _MODULES:
        return importlib.import_module("." + name, __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_MODULES})
