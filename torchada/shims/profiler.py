"""torch.profiler: CUDA's activity means the device's, and what CUDA's tools look for is there."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity

from ..errors import TorchadaWarning
from .device import BACKEND

_OWN_KIND = "privateuse1_"
_OWN_CATEGORY = f'"cat": "{_OWN_KIND}'.encode()
_CALL = re.compile(f"^{BACKEND}(?=[A-Z])")
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


def _names_cuda(activities: Any) -> bool:
    """Whether CUDA is asked for by name. Who asks for nothing gets what CUDA programs get."""
    if activities is None:
        return True
    return any(
        ProfilerActivity.CUDA in item if isinstance(item, dict) else item == ProfilerActivity.CUDA
        for item in activities
    )


def new_profile(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.profiler.profile(activities=[ProfilerActivity.CUDA])``: what it shows is under CUDA's names, as asked."""
    asked = kwargs.get("activities")
    if isinstance(asked, Iterable):
        asked = list(asked)  # it may be an iterator
    kwargs["activities"] = torch.autograd._supported_activities() if asked is None else _translate(asked)
    original(self, *args, **kwargs)
    if self.use_device == BACKEND and _names_cuda(asked):
        self.use_device = "cuda"


def supported_activities(original: Callable[[], set[Any]]) -> set[Any]:
    """``torch.profiler.supported_activities()``: with CUDA's name for the device, for programs that look for it."""
    found = original()
    return found | {ProfilerActivity.CUDA} if _DEVICE in found else found


def toggle(original: Callable[..., None], self: Any, enable: bool, activities: Any) -> None:
    """``profile.toggle_collection_dynamic(False, [ProfilerActivity.CUDA])``"""
    original(self, enable, _translate(activities))


def new_autograd_profile(original: Callable[..., None], self: Any, *args: Any, **kwargs: Any) -> None:
    """``torch.autograd.profiler.profile(use_device="cuda")``, and ``use_cuda=True`` with torch's warning.

    torch chooses its recorder by the device's own name; results are made under the name that was asked for.
    """
    use_cuda = bool(kwargs.get("use_cuda"))
    if use_cuda:
        warnings.warn(
            "The attribute `use_cuda` will be deprecated soon, please use ``use_device = 'cuda'`` instead.",
            FutureWarning,
            stacklevel=3,
        )
        kwargs["use_cuda"] = False
    by_cuda = use_cuda or kwargs.get("use_device") == "cuda"
    if by_cuda:
        kwargs["use_device"] = BACKEND
    original(self, *args, **kwargs)
    if by_cuda and getattr(self, "use_device", None) == BACKEND:  # a disabled profile has no such attribute
        self.use_device, self.use_cuda = "cuda", use_cuda


def parse_results(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """The events of a profile that was asked for as CUDA's: on a CUDA device, as programs look for them."""
    if self.use_device != "cuda":
        return original(self, *args, **kwargs)
    self.use_device = BACKEND
    try:
        events = original(self, *args, **kwargs)
    finally:
        self.use_device = "cuda"
    for event in events:
        event.use_device = "cuda"
        if event.device_type == DeviceType.PrivateUse1:
            event.device_type = DeviceType.CUDA
        _name_as_cuda(event)
    return events


def _name_as_cuda(event: Any) -> None:
    """A call of the MUSA runtime gets the name of CUDA's. Before torch 2.13 only its name tells what an event is."""
    kind = getattr(event, "activity_type", None)
    if kind is None:
        if getattr(event, "is_user_annotation", False):
            return
    elif kind.startswith(_OWN_KIND):
        event.activity_type = "cuda_" + kind.removeprefix(_OWN_KIND)
    else:
        return
    event.name = _CALL.sub("cuda", event.name)
    if getattr(event, "trace_name", None):
        event.trace_name = _CALL.sub("cuda", event.trace_name)


def export_trace(original: Callable[..., Any], self: Any, path: Any, *args: Any, **kwargs: Any) -> Any:
    """``export_chrome_trace``: calls of the MUSA runtime have the category and the names by which tools know CUDA's.

    Kernels and copies are in the categories of every device. The file is rewritten in place: it gets shorter.
    """
    result = original(self, path, *args, **kwargs)
    if self.use_device == "cuda" and os.path.isfile(path):
        with open(path, "rb") as source, open(path, "r+b") as target:
            of_runtime = 0  # the name stands on the line after the category
            for line in source:
                of_runtime = 2 if _OWN_CATEGORY in line else of_runtime - 1
                if of_runtime > 0:
                    line = line.replace(_OWN_CATEGORY, b'"cat": "cuda_').replace(b'"name": "musa', b'"name": "cuda')
                target.write(line)
            target.truncate()
    return result


def export_memory_timeline(original: Callable[..., Any], self: Any, path: Any, device: Any = None) -> Any:
    """``export_memory_timeline``: without a device it is the first of those that were profiled."""
    return original(self, path, "cuda:0" if device is None and self.use_device == "cuda" else device)


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
