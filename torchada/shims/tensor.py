"""Tensor methods and legacy tensor types that name CUDA inside torch's C++ code."""

from __future__ import annotations

import numbers
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import has_torch_function_unary

from .. import _detour
from ..errors import NotOnMusa
from ..redirect import redirect_python
from .device import BACKEND, translate

Original = Callable[..., Any]


# ---------------------------------------------------------------- methods and properties
def cuda(original: Original, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``Tensor.cuda``: the C++ method insists on a device of type cuda, so the copy goes through ``to``."""
    if has_torch_function_unary(self):  # the original hands the call to the override, as it was written
        return original(self, *args, **kwargs)
    return _cuda(self, *args, **kwargs)


def _cuda(
    self: torch.Tensor,
    device: Any = None,
    non_blocking: bool = False,
    *,
    memory_format: torch.memory_format | None = None,
) -> Any:
    if device is None:
        device = BACKEND
    elif isinstance(device, (str, torch.device)):
        if torch.device(device).type != BACKEND:
            raise RuntimeError("Invalid device, must be cuda device")
    elif isinstance(device, (bool, torch.Tensor)) or not hasattr(device, "__index__"):  # to(tensor) is another thing
        raise TypeError(f"cuda(): argument 'device' (position 1) must be torch.device, not {type(device).__name__}")
    if memory_format is None:
        return torch.Tensor.to(self, device, non_blocking=non_blocking)
    return torch.Tensor.to(self, device, non_blocking=non_blocking, memory_format=memory_format)


def traced_type(original: Original, variable: Any, *args: Any, **kwargs: Any) -> Any:
    """``Tensor.type()`` while Dynamo traces. A newer one passes its translator first."""
    result = original(variable, *args, **kwargs)
    name = getattr(result, "value", None)
    if isinstance(name, str) and name.startswith(f"torch.{BACKEND}."):
        return type(result).create(name.replace(f"torch.{BACKEND}.", "torch.cuda."))
    return result


def cuda_array_interface(original: Original, self: torch.Tensor) -> Any:
    """``Tensor.__cuda_array_interface__``: a consumer would take the address for CUDA memory."""
    if self.device.type == BACKEND:
        raise NotOnMusa(
            "torch.Tensor.__cuda_array_interface__",
            "its readers (CuPy, Numba) would take the address of MUSA memory for a CUDA address.",
            "copy through .cpu(), or exchange with DLPack where the other side knows MUSA.",
        )
    return original(self)


def dlpack_device(original: Original, self: torch.Tensor) -> tuple[Any, int]:
    """``Tensor.__dlpack_device__``: an extension's device, as the capsule itself says; never CUDA's."""
    if self.device.type != BACKEND or has_torch_function_unary(self):
        return original(self)  # type: ignore[no-any-return]
    return torch.utils.dlpack.DLDeviceType.kDLExtDev, self.device.index


def allow_lazy_modules() -> Callable[[], None]:
    """Parameters of lazy modules list the methods they allow; torch_musa has put another object in the place of one."""
    allowed = torch.nn.parameter.UninitializedTensorMixin._allowed_methods
    added = [method for method in (torch.Tensor.to,) if method not in allowed]
    allowed.extend(added)

    def undo() -> None:
        for method in added:
            allowed.remove(method)

    return undo


def _compares_devices(name: str) -> bool:
    """Whether torch_musa put its own function over ``Tensor.name`` and that function names a device type itself.

    One that only hands its arguments on to torch's method needs no translation of its own, and none is what it gets:
    these methods are called too often for a second look at their arguments.
    """
    function = vars(torch.Tensor).get(name)
    if function is None:
        return False
    words = {*function.__code__.co_consts, *(function.__defaults__ or ())} - {function.__doc__}
    helpers = [function.__globals__.get(used) for used in function.__code__.co_names]
    words.update(*(helper.__code__.co_consts for helper in helpers if hasattr(helper, "__code__")))
    return any(isinstance(word, str) and BACKEND in word for word in words)


def to_compares_devices() -> bool:
    return _compares_devices("to")


def pin_memory_compares_devices() -> bool:
    return _compares_devices("pin_memory")


def is_pinned_compares_devices() -> bool:
    return _compares_devices("is_pinned")


# ---------------------------------------------------------------- legacy types
def _legacy_types() -> dict[str, Any]:
    """``"torch.cuda.FloatTensor"`` -> the class, for every CUDA class that torch made."""
    return {f"{kind.__module__}.{kind.__name__}": kind for kind in torch._tensor_classes if kind.is_cuda}


def _legacy(kind: Any) -> Any:
    """The legacy CUDA class that *kind* (class or string) names, or None."""
    if isinstance(kind, str):
        return _legacy_types().get(kind)
    return kind if isinstance(kind, type(torch.FloatTensor)) and kind.is_cuda else None


def tensor_type(original: Original, self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
    """``Tensor.type``: names MUSA tensors as a CUDA program does, and converts to a type named that way."""
    if has_torch_function_unary(self):
        return original(self, *args, **kwargs)
    return _tensor_type(original, self, *args, **kwargs)


def _tensor_type(original: Original, self: torch.Tensor, dtype: Any = None, *args: Any, **kwargs: Any) -> Any:
    if dtype is None:
        return original(self, *args, **kwargs).replace(f"torch.{BACKEND}.", "torch.cuda.")
    legacy = _legacy(dtype)
    if legacy is None:
        if isinstance(dtype, str) and dtype.startswith("torch.cuda."):
            raise ValueError(f"invalid type: {dtype!r}")
        return original(self, dtype, *args, **kwargs)
    device = self.device if self.device.type == BACKEND else BACKEND
    non_blocking = bool(args[0] if args else kwargs.get("non_blocking", kwargs.get("async", False)))
    result = torch.Tensor.to(self, device, legacy.dtype, non_blocking=non_blocking)
    return result.to_sparse() if legacy.layout == torch.sparse_coo and not result.is_sparse else result


def legacy_instance(original: Original, kind: Any, value: Any) -> bool:
    """``isinstance(x, torch.cuda.FloatTensor)``"""
    if not kind.is_cuda:
        return bool(original(kind, value))
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == BACKEND
        and value.dtype == kind.dtype
        and value.layout == kind.layout
    )


def _is_size(value: Any) -> bool:
    """An integer, or a NumPy array or tensor of no dimensions; arrays with dimensions have ``__index__`` as well."""
    if isinstance(value, (numbers.Integral, torch.SymInt)):
        return True
    return hasattr(value, "__index__") and getattr(value, "shape", None) == ()


def legacy_new(original: Original, kind: Any, *args: Any, device: Any = BACKEND, **kwargs: Any) -> torch.Tensor:
    """``torch.cuda.FloatTensor(...)``: no argument, sizes, a sequence, a storage or a tensor."""
    if kwargs:
        raise TypeError(f"{kind.__name__}() got unexpected keyword arguments {sorted(kwargs)}")
    target = torch.device(translate(device))
    if target.type != BACKEND:
        raise RuntimeError(f"legacy constructor expects device type: cuda but device type: {target.type} was passed")
    if kind.layout == torch.sparse_coo:
        if all(_is_size(size) for size in args):
            args = (args or (0,),)
        return torch.sparse_coo_tensor(*args, dtype=kind.dtype, device=target)
    if all(_is_size(size) for size in args) and not (len(args) == 1 and isinstance(args[0], torch.Tensor)):
        return torch.empty(*args or (0,), dtype=kind.dtype, device=target)
    if len(args) != 1:
        raise TypeError(f"{kind.__name__}() takes sizes, or one sequence, storage or tensor")
    (source,) = args
    if isinstance(source, torch.Tensor):
        if not legacy_instance(original, kind, source):
            raise TypeError(f"expected {kind.__module__}.{kind.__name__} (got {source.type()})")
        return torch.ops.aten.alias.default(source)
    if isinstance(source, (torch.UntypedStorage, torch.TypedStorage)):
        return torch.empty(0, dtype=kind.dtype, device=source.device).set_(source)
    if isinstance(source, torch.Size):
        return torch.empty(source, dtype=kind.dtype, device=target)
    if isinstance(source, (float, complex)):
        raise TypeError(f"new(): data must be a sequence (got {type(source).__name__})")
    return torch.tensor(source, dtype=kind.dtype, device=target)


def legacy_types() -> Callable[[], None]:
    """Redirect the constructors of all legacy CUDA classes; they are listed nowhere but in torch itself."""
    handles = [_detour.redirect_new(kind, shim=legacy_new) for kind in _legacy_types().values()]

    def undo() -> None:
        for handle in reversed(handles):
            handle.restore()

    return undo


def default_new(original: Original, kind: type, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``torch.Tensor(...)`` while a CUDA class is the default: as the CUDA class of the default dtype."""
    dtype = torch.get_default_dtype()
    legacy = next(each for each in _legacy_types().values() if each.dtype == dtype and each.layout == torch.strided)
    return legacy_new(original, legacy, *args, **kwargs).as_subclass(kind)


def default_tensor_type() -> Callable[[], None]:
    """``torch.set_default_tensor_type``: for a CUDA class the default dtype, the default device and what
    ``torch.Tensor(...)`` makes are set; for another class, and on undo, they are given back."""
    handles: list[Any] = []

    def give_back() -> None:
        while handles:
            handles.pop().restore()
            torch.set_default_device(None)

    def set_default(original: Original, t: Any) -> None:
        legacy = _legacy(t)
        if legacy is None:
            original(t)
            give_back()
            return
        torch.set_default_dtype(legacy.dtype)
        if not handles:
            torch.set_default_device(BACKEND)
            handles.append(_detour.redirect_new(torch._C.TensorBase, shim=default_new))

    restore = redirect_python(torch.set_default_tensor_type, set_default)  # type: ignore[arg-type]

    def undo() -> None:
        give_back()
        restore()

    return undo
