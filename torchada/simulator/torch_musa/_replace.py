"""Replacing a function of torch's compiler, which its modules import from each other by name."""

import sys
from typing import Any


def replace_everywhere(original: Any, replacement: Any):
    """Put `replacement` where torch's compiler modules, loaded so far, have `original` under its name."""
    for name, module in list(sys.modules.items()):
        if name.startswith(("torch._inductor", "torch._dynamo", "torch._functorch", "torch.utils._triton")):
            names: dict[str, Any] = vars(module)
            for key in [key for key, value in names.items() if value is original]:
                names[key] = replacement
