"""Checks of the parts of a sparse tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .device import BACKEND


def validate(original: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """``torch._validate_sparse_coo_tensor_args`` and its kind: what the device's tensors hold is checked on the CPU.

    torch's check names the devices it takes, or calls kernels that only those have.
    """

    def on_cpu(value: Any) -> Any:
        return value.cpu() if isinstance(value, torch.Tensor) and value.device.type == BACKEND else value

    given = [*args, *kwargs.values()]
    if len({value.device for value in given if isinstance(value, torch.Tensor)}) == 1:  # else torch has to say so
        args, kwargs = tuple(map(on_cpu, args)), {name: on_cpu(value) for name, value in kwargs.items()}
    original(*args, **kwargs)
