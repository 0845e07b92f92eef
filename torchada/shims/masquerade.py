"""What masqueraded modules are told (docs/masquerade.md). Everybody else gets the true answer."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from .. import _asker
from ..scope import SCOPE
from .device import BACKEND

CUDA_VERSION = "12.8"  # of the CUDA builds of torch 2.7 to 2.10; programs ask for features of 11 and 12

device_type = _asker.device_type


def device_text() -> Callable[[], None]:
    """``str(device)`` and ``repr(device)``; also tells the compiled part who is masqueraded."""
    _asker.configure(SCOPE.verdicts, SCOPE.decide, BACKEND, "cuda")
    _asker.redirect_text(torch.device)
    return _asker.restore_text


def yes(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """True for a masqueraded caller (two frames out: the redirected function lies between)."""
    return True if SCOPE.asked_by(sys._getframe(1).f_back) else original(*args, **kwargs)


def version_cuda() -> Callable[[], None]:
    """``torch.version.cuda``: the module answers it by ``__getattr__``, which knows who asks."""
    names = vars(torch.version)
    true = names.pop("cuda")

    def __getattr__(name: str) -> Any:
        if name == "cuda":
            return CUDA_VERSION if SCOPE.asked_by(sys._getframe(1)) else true
        raise AttributeError(f"module {torch.version.__name__!r} has no attribute {name!r}", name=name)

    names["__getattr__"] = __getattr__

    def undo() -> None:
        if names.get("__getattr__") is __getattr__:
            del names["__getattr__"]
        names.setdefault("cuda", true)  # a value somebody wrote since stays

    return undo
