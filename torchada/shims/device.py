"""Device values: what counts as a CUDA device and what it becomes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .. import _detour

MAX_INDEX = 64
SPELLINGS = {"cuda": "musa"} | {f"cuda:{index}": f"musa:{index}" for index in range(MAX_INDEX)}


def configure() -> Callable[[], None]:
    """Teach the detours the spellings of CUDA devices and the device objects made before activation."""
    devices = {torch.device(cuda): torch.device(musa) for cuda, musa in SPELLINGS.items()}
    _detour.configure(SPELLINGS, torch.device, devices)
    return lambda: None


def spellings() -> dict[str, Any]:
    """Ready devices for the usual strings."""
    usual = {name: torch.device(name) for name in ("cpu", "meta", "musa", *(f"musa:{i}" for i in range(8)))}
    return usual | {cuda: torch.device(musa) for cuda, musa in SPELLINGS.items()}
