"""CUDA_VISIBLE_DEVICES and PYTORCH_CUDA_ALLOC_CONF written by a program that has imported torch already."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch_musa

from ..allocator import changed_options
from ..redirect import redirect
from ..rules import Detour
from ..visible import follow_visible_devices

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
    """Every way to a device leads through one of two bindings: counting, and initialisation."""
    if torch_musa.is_initialized():
        _set_options()
        return lambda: None
    for name in ("_musa_getDeviceCount", "_musa_init"):
        binding = getattr(torch_musa._MUSAC, name)
        _watched.append(redirect(torch_musa._MUSAC, name, binding, Detour(shim="visible:first_use")))
    return _stop
