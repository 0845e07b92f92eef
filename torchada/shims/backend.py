"""Bringing torch_musa in at the end of ``import torch``."""

from __future__ import annotations

import importlib
import sys

import torch


def import_backends(autoload: bool) -> None:
    """What torch does itself at its end (*autoload*: all registered device backends), then torch_musa."""
    if autoload and hasattr(torch, "_import_device_backends"):
        torch._import_device_backends()
    if "torch_musa" not in sys.modules:
        importlib.import_module("torch_musa")
