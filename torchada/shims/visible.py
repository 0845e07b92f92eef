"""CUDA_VISIBLE_DEVICES and PYTORCH_CUDA_ALLOC_CONF written by a program that has imported torch already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_musa

from ..allocator import changed_options
from ..redirect import redirect
from ..rules import Detour
from ..visible import follow_visible_devices

_OF_THE_ACCELERATOR = ("_accelerator_deviceCount", "_accelerator_getDeviceIndex", "_accelerator_setDeviceIndex")
_watched: list[Callable[[], None]] = []


def first_use(original: Callable[..., Any], *args: Any) -> Any:
    """The runtime is about to read its variable. It does so once: from here on the bindings are left alone."""
    follow_visible_devices()
    _stop()
    _set_options()
    return original(*args)


def _stop() -> None:
    while _watched:
        _watched.pop()()


def _set_options() -> None:
    options = changed_options()
    if options:
        torch_musa._MUSAC._musa_musaCachingAllocator_set_allocator_settings(options)


def follow_until_first_use() -> Callable[[], None]:
    """Every way to a device leads through one of these: the backend's count and initialisation, and those functions of
    torch.accelerator that older versions implement in C++."""
    if torch_musa.is_initialized():
        _set_options()
        return lambda: None
    names = [(torch_musa._MUSAC, "_musa_getDeviceCount"), (torch_musa._MUSAC, "_musa_init")]
    names += [(torch._C, name) for name in _OF_THE_ACCELERATOR if hasattr(torch._C, name)]
    for module, name in names:
        _watched.append(redirect(module, name, getattr(module, name), Detour(shim="visible:first_use")))
    return _stop
