"""What optimizers ask CUDA for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def check_capture(original: Callable[..., Any], /, self: Any) -> None:
    """Whether ``step()`` may be captured: torch's own check asks certain accelerators only, and not MUSA."""
    original(self)
    if torch.compiler.is_compiling() or not torch.cuda.is_initialized():
        return
    if torch.cuda.is_current_stream_capturing() and not all(group["capturable"] for group in self.param_groups):
        raise RuntimeError(
            f"Attempting CUDA graph capture of step() for an instance of {type(self).__name__} but param_groups' "
            "capturable is False."
        )
