"""torch.profiler: CUDA's activity means the device's, and what CUDA's tools look for is there."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from ..errors import TorchadaWarning
from .device import BACKEND

_DEVICE = getattr(ProfilerActivity, "MUSA", ProfilerActivity.PrivateUse1)


def _translate_kinds(activity: Any, kinds: Iterable[str]) -> tuple[Any, Any]:
    """An activity and the kinds of events asked for; those that torch knows for CUDA only stay, and it refuses them."""
    if activity != ProfilerActivity.CUDA:
        return activity, kinds
    own = {"CUDA_RUNTIME": "PRIVATEUSE1_RUNTIME", "CUDA_DRIVER": "PRIVATEUSE1_DRIVER"}
    return _DEVICE, [own.get(kind, kind) for kind in kinds]


def _translate(activities: Any) -> Any:
    """The same activities (or filters by activity), in the same order, each once. What is no iterable is torch's."""
    if not isinstance(activities, Iterable):
        return activities
    found: list[Any] = []
    for item in activities:
        if isinstance(item, dict):
            item = dict(_translate_kinds(activity, kinds) for activity, kinds in item.items())
        elif item == ProfilerActivity.CUDA:
            item = _DEVICE
        if item not in found:
            found.append(item)
    return found


def new_profile(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.profiler.profile(activities=[ProfilerActivity.CUDA])``"""
    asked = kwargs.get("activities")
    kwargs["activities"] = torch.autograd._supported_activities() if asked is None else _translate(asked)
    original(self, *args, **kwargs)


def supported_activities(original: Callable[[], set[Any]]) -> set[Any]:
    """``torch.profiler.supported_activities()``: with CUDA's name for the device, for programs that look for it."""
    found = original()
    return found | {ProfilerActivity.CUDA} if _DEVICE in found else found


def toggle(original: Callable[..., None], self: Any, enable: bool, activities: Any) -> None:
    """``profile.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])``"""
    original(self, enable, _translate(activities))


def new_autograd_profile(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.autograd.profiler.profile(use_device="cuda")``, and ``use_cuda=True`` with torch's warning."""
    if kwargs.get("use_device") == "cuda":
        kwargs["use_device"] = BACKEND
    if kwargs.get("use_cuda"):
        warnings.warn(
            "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.",
            FutureWarning,
            stacklevel=3,
        )
        kwargs.update(use_cuda=False, use_device=BACKEND)
    original(self, *args, **kwargs)


def export_trace(original: Callable[..., Any], self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """``export_chrome_trace``: calls of the MUSA runtime are in the category in which tools look for CUDA's.

    Kernels and copies are in the categories of every device. The file is rewritten in place: it gets shorter.
    """
    result = original(self, path, *args, **kwargs)
    if self.use_device == BACKEND and os.path.isfile(path):
        with open(path, "rb") as source, open(path, "r+b") as target:
            for line in source:
                target.write(line.replace(b'"cat": "privateuse1_', b'"cat": "cuda_'))
            target.truncate()
    return result


def enter_nvtx(original: Callable[..., Any], self: Any) -> Any:
    """``emit_nvtx``: nothing here takes a range for each operator, so none is made; torch's profiler has them."""
    if not self.enabled or self.entered:
        return original(self)
    self.entered = True
    torch.cuda.synchronize()
    warnings.warn(
        "emit_nvtx() emits nothing on MUSA: there is no NVTX. Instead: torch.profiler.profile() records the operators.",
        TorchadaWarning,
        stacklevel=3,
    )
    return self


def exit_nvtx(original: Callable[..., Any], self: Any, *error: Any) -> Any:
    """The end of it: waits for the device, as torch does."""
    if not self.enabled:
        return original(self, *error)
    torch.cuda.synchronize()
    return False
