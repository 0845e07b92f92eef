"""Dynamo's tables, in which a class of torch.cuda and the backend's of the same name are one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch


def register_device_context(original: Callable[..., Any], /, device_context: type, variable_cls: type) -> None:
    """``torch.cuda.device`` is the backend's class here: the backend's variable takes the place of CUDA's, where torch
    would say that the class is registered already."""
    if device_context is torch.cuda.device:
        original.__globals__["_device_context_manager_map"].pop(device_context, None)
    original(device_context, variable_cls)
