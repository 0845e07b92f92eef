"""Native extensions by name."""

import importlib


def load_ext(name, funcs=None):
    """Import `torch_musa.<name>` and check that it has `funcs`. ImportError if not."""
    module = importlib.import_module(f"torch_musa.{name}")
    for func in funcs or ():
        if not hasattr(module, func):
            raise ImportError(f"{func} is missing in torch_musa.{name}")
    return module
