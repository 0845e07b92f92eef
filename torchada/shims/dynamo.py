"""Dynamo's tables: a class of torch.cuda and the backend's of the same name are one, and our code is torch's."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..redirect import redirect_python
from .device import BACKEND

_PACKAGE = Path(__file__).parent.parent
# Not the simulator's: that stands for torch_musa, which Dynamo takes for a program like any other.
OWN_FILES = (str(_PACKAGE / "shims") + os.sep, *map(str, _PACKAGE.glob("*.py")))


CHECKED_GPUS = (BACKEND, "xpu")  # device types whose model compiled code is tied to


def keep_random_state(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Compiling a function leaves the device's random state as it was."""
    if not torch.cuda.is_initialized():
        return original(*args, **kwargs)
    without_modes = torch.utils._python_dispatch._disable_current_modes
    with torch._C.DisableTorchFunction(), without_modes():
        state = torch.cuda.get_rng_state()
    try:
        return original(*args, **kwargs)
    finally:
        with torch._C.DisableTorchFunction(), without_modes():
            torch.cuda.set_rng_state(state)


def traces_inside() -> bool | None:
    """Whether this torch has no ``trace_frame``; None until Dynamo is imported."""
    module = sys.modules.get("torch._dynamo.convert_frame")
    return None if module is None else not hasattr(module, "trace_frame")


def register_device_context(original: Callable[..., Any], /, device_context: type, variable_cls: type) -> None:
    """``torch.cuda.device`` is the backend's class here: the backend's variable takes the place of CUDA's, where torch
    would say that the class is registered already."""
    if device_context is torch.cuda.device:
        original.__globals__["_device_context_manager_map"].pop(device_context, None)
    original(device_context, variable_cls)


def own_files() -> Callable[[], None]:
    """What we put into torch's functions is torch's to Dynamo: followed where a compiled function calls it, and never
    compiled by itself where torch calls it (compiled code asks for the current stream, for one)."""
    rules: Any = sys.modules["torch._dynamo.trace_rules"]

    def is_allowed(original: Callable[..., bool], filename: str) -> bool:
        return filename.startswith(OWN_FILES) or original(filename)

    restore = redirect_python(rules.is_torch_inline_allowed, is_allowed)
    rules.SKIP_DIRS.extend(OWN_FILES)
    rules._recompile_re()

    def undo() -> None:
        restore()
        rules.SKIP_DIRS[:] = [path for path in rules.SKIP_DIRS if path not in OWN_FILES]
        rules._recompile_re()

    return undo
