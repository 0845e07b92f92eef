"""Short CUDA programs, grouped by area: what PyTorch's documentation promises of torch.cuda, in our own words.

Every snippet is a function without arguments that a CUDA machine passes as it stands: none of them mentions MUSA or
torchada. ``python -m tests.snippets`` runs them on any machine, also on one with an NVIDIA card.
"""

import importlib
import inspect
import pkgutil
from collections.abc import Callable


def every() -> dict[str, Callable[[], None]]:
    """``area.name`` -> snippet."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        if not module.name.startswith(("_", "test_")):
            area = importlib.import_module(f"{__name__}.{module.name}")
            for name, value in vars(area).items():
                if inspect.isfunction(value) and value.__module__ == area.__name__ and not name.startswith("_"):
                    found[f"{module.name}.{name}"] = value
    return found
