"""Checkpoints in both directions: files carry CUDA locations, memory is on the MUSA device."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import serialization
from torch.utils.hooks import warn_if_has_hooks

from .device import BACKEND, as_cuda, translate


def _tag(storage: Any) -> str | None:
    """The location written for MUSA memory: the CUDA name, so that the file loads on CUDA and CPU machines too."""
    return f"cuda:{storage.device.index or 0}" if storage.device.type == BACKEND else None


def _validated(location: str) -> torch.device:
    """The MUSA device a CUDA location means. RuntimeError, in torch's words, when there is no such device."""
    device = torch.device(location)
    try:
        return serialization._validate_device(str(device), BACKEND)  # type: ignore[no-any-return]
    except RuntimeError as error:
        raise RuntimeError(as_cuda(str(error))) from None


def _restore(storage: Any, location: str) -> Any:
    """Put *storage* where the CUDA name *location* says; None for the location of another device.

    RuntimeError, as torch raises it, for a name that only begins like one (``cuda0``).
    """
    if translate(location) is location and not location.startswith("cuda"):
        return None
    return storage.to(device=_validated(location))


def install() -> Callable[[], None]:
    """Register CUDA locations before every other package, torch_musa's raising one included."""
    registry = serialization._package_registry
    priority = min((entry[0] for entry in registry), default=10) - 1
    serialization.register_package(priority, _tag, _restore)

    def undo() -> None:
        registry[:] = [entry for entry in registry if entry[1] is not _tag]

    return undo


def reduce_tensor(original: Callable[..., Any], self: torch.Tensor, protocol: int) -> Any:
    """``Tensor._reduce_ex_internal``: a sparse MUSA tensor is written as a sparse CUDA tensor is, by its parts.

    torch writes a tensor without a storage that is on any other accelerator as a copy and the device's name, which no
    CUDA or CPU machine can read.
    """
    if self.device.type != BACKEND or torch._C._has_storage(self):
        return original(self, protocol)
    if self.layout == torch.sparse_coo:
        parts: tuple[Any, ...] = (self._indices(), self._values(), self.size(), self.is_coalesced())
    elif self.layout in (torch.sparse_csr, torch.sparse_bsr):
        parts = (self.crow_indices(), self.col_indices(), self.values(), self.size())
    elif self.layout in (torch.sparse_csc, torch.sparse_bsc):
        parts = (self.ccol_indices(), self.row_indices(), self.values(), self.size())
    else:
        return original(self, protocol)
    warn_if_has_hooks(self)
    return torch._utils._rebuild_sparse_tensor, (self.layout, parts)


def validate_cuda_device(original: Callable[..., Any], location: str) -> int | None:
    """``torch.serialization.validate_cuda_device``"""
    return _validated(location).index


# ---------------------------------------------------------------- objects that keep the device as a word
def portable_state(original: Callable[..., dict[str, Any]], self: Any) -> dict[str, Any]:
    """``__getstate__``: the device type is written as CUDA's."""
    return {name: "cuda" if _says_device(name, value) else value for name, value in original(self).items()}


def restored_state(original: Callable[..., None], self: Any, state: dict[str, Any]) -> None:
    """``__setstate__``: read here it is the MUSA device again, as for a device."""
    original(self, {name: translate(value) if "device" in name else value for name, value in state.items()})


def autocast_state() -> Callable[[], None]:
    """An autocast context keeps the backend's module, which nothing can pickle or copy; its state is like CUDA's."""
    kind: Any = torch.amp.autocast_mode.autocast

    def get(self: Any) -> dict[str, Any]:
        state = portable_state(vars, self)
        if state.pop("custom_device_mod", None) is not None:
            state["custom_backend_name"] = "privateuseone"  # where nobody has given it another name
        return state

    def put(self: Any, state: dict[str, Any]) -> None:
        restored_state(lambda self, state: self.__dict__.update(state), self, state)
        if vars(self).get("device") == BACKEND:
            vars(self).update(custom_backend_name=BACKEND, custom_device_mod=torch.get_device_module(BACKEND))

    kind.__getstate__, kind.__setstate__ = get, put

    def undo() -> None:
        for name, ours in (("__getstate__", get), ("__setstate__", put)):
            if vars(kind).get(name) is ours:
                delattr(kind, name)

    return undo


def _says_device(name: str, value: Any) -> bool:
    return "device" in name and isinstance(value, str) and value == BACKEND


def reduce_graph_module(original: Callable[..., Any], self: Any) -> Any:
    """``GraphModule.__reduce__``: it is written as Python code, in which devices are spelled out."""
    function, (state, *more), *rest = original(self)
    if isinstance(state.get("_code"), str):
        state = {**state, "_code": state["_code"].replace(f"device(type='{BACKEND}'", "device(type='cuda'")}
    return (function, (state, *more), *rest)


def exported_device(original: Callable[..., None], self: Any, type: str, *args: Any, **kwargs: Any) -> None:
    """A device in a file of ``torch.export.save``."""
    original(self, "cuda" if type == BACKEND else type, *args, **kwargs)


def exported_region(original: Callable[..., Any], self: Any, args: Any, kwargs: Any) -> Any:
    """The arguments of an operator over graphs: of ``wrap_with_autocast`` the first is the device type."""
    if args and isinstance(args[0], str) and args[0] == BACKEND:
        args = ("cuda", *args[1:])
    return original(self, args, kwargs)


def move_program(original: Callable[..., Any], ep: Any, location: Any) -> Any:
    """``torch.export.passes.move_to_device_pass``: a dictionary has what ``str(device)`` gives as its keys."""
    if isinstance(location, dict):
        location = {translate(old): new for old, new in location.items()}
    return original(ep, location)
