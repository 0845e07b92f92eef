"""Bringing torch_musa in at the end of ``import torch``."""

from __future__ import annotations

import importlib
import sys

import torch

from ..errors import TorchadaError


def import_backends(autoload: bool) -> None:
    """What torch does itself at its end (*autoload*: all registered device backends), then torch_musa."""
    if autoload and hasattr(torch, "_import_device_backends"):
        torch._import_device_backends()
    if "torch_musa" not in sys.modules:
        importlib.import_module("torch_musa")


def check_backend() -> None:
    """Raise TorchadaError unless torch has the backend that a torch_musa brings: without it no rule would hold."""
    name = torch._C._get_privateuse1_backend_name()
    if name != "musa":
        origin = getattr(sys.modules["torch_musa"], "__file__", None)
        raise TorchadaError(f"the torch_musa from {origin} gives torch no device backend named 'musa'; reinstall it")
