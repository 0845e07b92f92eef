"""Processes that are forked after the backend was initialised."""

from __future__ import annotations

import os
from collections.abc import Callable

import torch_musa

from ..redirect import redirect_python
from .device import as_cuda

_in_forked_children = False  # whether a rule wants it: what is registered to run after a fork stays registered
_registered = False


def _lazy_init(original: Callable[[], None]) -> None:
    """``_lazy_init`` of a forked child: the error of a backend that the parent had initialised, in CUDA's words."""
    try:
        original()
    except RuntimeError as error:
        if "forked subprocess" not in str(error):
            raise
        raise RuntimeError(as_cuda(str(error))) from None


def _after_fork() -> None:
    if _in_forked_children and torch_musa.core._lazy_init._initialized:
        redirect_python(torch_musa.core._lazy_init._lazy_init, _lazy_init)


def forked_children() -> Callable[[], None]:
    """Redirect initialisation in children that are forked from now on, and only there: it is asked at every call."""
    global _in_forked_children, _registered
    _in_forked_children = True
    if not _registered:
        os.register_at_fork(after_in_child=_after_fork)
        _registered = True

    def undo() -> None:
        global _in_forked_children
        _in_forked_children = False

    return undo
