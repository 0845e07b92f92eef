"""torch.profiler: CUDA's activity means the device's."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from typing import Any

from torch.profiler import ProfilerActivity

from .device import BACKEND

_DEVICE = getattr(ProfilerActivity, "MUSA", ProfilerActivity.PrivateUse1)


def _translate(activities: Any) -> Any:
    """The same activities (or filters by activity), in the same order, each once. What is no iterable is torch's."""
    if not isinstance(activities, Iterable):
        return activities
    found: list[Any] = []
    for item in activities:
        if isinstance(item, dict):
            item = {
                _DEVICE if activity == ProfilerActivity.CUDA else activity: kinds for activity, kinds in item.items()
            }
        elif item == ProfilerActivity.CUDA:
            item = _DEVICE
        if item not in found:
            found.append(item)
    return found


def new_profile(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.profiler.profile(activities=[ProfilerActivity.CUDA])``"""
    if kwargs.get("activities") is not None:
        kwargs["activities"] = _translate(kwargs["activities"])
    original(self, *args, **kwargs)


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
