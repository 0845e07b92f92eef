"""Custom operators: kernels registered for CUDA are kernels of the MUSA device.

A registration costs a look-up in a small dict; only one that names a CUDA key asks further who it comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import torch

from ..errors import tell
from .device import BACKEND, translate

KEYS = {
    f"{kind}CUDA": f"{kind}PrivateUse1"
    for kind in ("", "Autograd", "Autocast", "Sparse", "SparseCsr", "Quantized", "NestedTensor")
}
KEYS_OF_CUDA = {
    getattr(torch._C.DispatchKey, theirs): getattr(torch._C.DispatchKey, ours) for theirs, ours in KEYS.items()
}
_AUTOCAST = torch._C.DispatchKey.AutocastCUDA
_FROM_HERE = (__name__, "torch.library", "torch._library.custom_ops", "torch._custom_op.impl", "torch._custom_ops")


def _by_torch() -> bool:
    """Whether torch registers for itself: its own CUDA kernels are for CUDA, or it registers for every device."""
    frame = sys._getframe(2)
    while frame.f_back is not None and frame.f_globals.get("__name__") in _FROM_HERE:
        frame = frame.f_back
    return str(frame.f_globals.get("__name__")).startswith("torch.")


def dispatch_library(original: Callable[..., Any], kind: str, ns: str, dispatch_key: str = "", *more: Any) -> Any:
    """``torch.library.Library(ns, kind, "CUDA")``"""
    if dispatch_key in KEYS and not _by_torch():
        dispatch_key = KEYS[dispatch_key]
    return original(kind, ns, dispatch_key, *more)


def impl(original: Callable[..., Any], self: Any, op_name: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
    """``Library.impl(name, fn, "CUDA")``, and ``torch.library.impl``, which comes here."""
    key = dispatch_key or self.dispatch_key
    if key in KEYS and not _by_torch():
        dispatch_key = KEYS[key]
    return original(self, op_name, fn, dispatch_key, **options)


def fallback(original: Callable[..., Any], self: Any, fn: Any, dispatch_key: str = "", **options: Any) -> Any:
    """``Library("_", "IMPL").fallback(fn, "CUDA")``; the one of the safety net is for CUDA itself."""
    key = dispatch_key or self.dispatch_key
    return original(self, fn, KEYS.get(key, key), **options)


def get_kernel(original: Callable[..., Any], op: Any, dispatch_key: Any) -> Any:
    """``torch.library.get_kernel(op, "CUDA")``, with the key as text or as a member of ``DispatchKey``."""
    if isinstance(dispatch_key, torch._C.DispatchKey):
        dispatch_key = getattr(torch._C.DispatchKey, KEYS.get(dispatch_key.name, dispatch_key.name))
    return original(op, KEYS.get(dispatch_key, dispatch_key))


def exclude_keys(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> None:
    """``_ExcludeDispatchKeyGuard(DispatchKeySet(DispatchKey.AutocastCUDA))``: the MUSA device's autocast as well.

    Of the keys of CUDA's only this one needs it: the others are one functionality for all devices in such a set.
    """
    if isinstance(args[-1], torch._C.DispatchKeySet) and args[-1].has(_AUTOCAST):
        args = (*args[:-1], args[-1].add(KEYS_OF_CUDA[_AUTOCAST]))
    original(*args, **kwargs)


def thread_key(original: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
    """Functions and guards for one key of the thread's state, which they take by position only."""
    keys = (KEYS_OF_CUDA.get(arg, arg) if isinstance(arg, torch._C.DispatchKey) else arg for arg in args)
    return original(*keys, **kwargs)


def register_kernel(original: Callable[..., Any], self: Any, device_types: Any, fn: Any = None) -> Any:
    """``custom_op(device_types="cuda")`` and ``op.register_kernel``: an operator without tensors looks for its kernel
    by the type of its device argument, which is CUDA where C++ made the device from a text."""
    if isinstance(device_types, (list, tuple)):
        device_types = [translate(each) for each in device_types]
    inner = original(self, translate(device_types))

    def register(fn: Callable[..., Any]) -> Callable[..., Any]:
        inner(fn)
        if BACKEND in self._backend_fns:
            self._backend_fns["cuda"] = self._backend_fns[BACKEND]
        return fn

    return register if fn is None else register(fn)


def check_free(original: Callable[..., None], self: Any, device_type: str) -> None:
    """``torch._custom_ops.impl(device_types="cuda")``: whether the operator has a kernel for the device already.

    torch asks for a kernel that would be found, and one is for every operator: the fallback of the key.
    """
    if translate(device_type) is device_type or self._has_impl(device_type):
        original(self, device_type)
        return
    for key in ("PrivateUse1", "CompositeExplicitAutograd", "CompositeImplicitAutograd"):
        if torch._C._dispatch_has_kernel_for_dispatch_key(self._qualname, key):
            raise RuntimeError(
                f"{self._qualname} already has an implementation for {device_type}, registered by torch.library or in "
                f"C++ for {key}"
            )


def register_autocast(original: Callable[..., Any], op: Any, device_type: Any, cast_inputs: Any, **options: Any) -> Any:
    """``torch.library.register_autocast`` where it knows two device types, and their dispatch keys, by name."""
    if device_type != BACKEND or not _autocast_by_name(original):
        return original(op, device_type, cast_inputs, **options)
    if isinstance(op, torch._library.custom_ops.CustomOpDef):
        return op.register_autocast(device_type, cast_inputs)
    name = op._name if isinstance(op, torch._ops.OpOverload) else op
    defined = torch.library._maybe_get_opdef(name)  # type: ignore[attr-defined]
    if defined is not None:
        return defined.register_autocast(device_type, cast_inputs)
    operator = torch._library.utils.lookup_op(name)
    namespace, operator_name = torch._library.utils.parse_namespace(name)
    library = options.get("lib")
    if library is None:
        library = torch.library.Library(namespace, "FRAGMENT")
        torch.library._keep_alive.append(library)
    return library.impl(operator_name, _cast_before(operator, cast_inputs), KEYS["AutocastCUDA"], with_keyset=True)


def register_autocast_of(original: Callable[..., Any], self: Any, device_type: Any, cast_inputs: Any) -> Any:
    """``CustomOpDef.register_autocast``, as above."""
    if device_type != BACKEND or not _autocast_by_name(original):
        return original(self, device_type, cast_inputs)
    kernel = _cast_before(self._opoverload, cast_inputs)
    if self._autocast_cuda_dtype is None:
        self._lib.impl(self._name, kernel, KEYS["AutocastCUDA"], with_keyset=True)
    self._autocast_cuda_dtype = cast_inputs
    return kernel


def _autocast_by_name(function: Any) -> bool:
    return "AutocastCUDA" in function.__code__.co_consts


def _cast_before(operator: Callable[..., Any], dtype: torch.dtype) -> Callable[..., Any]:
    """The kernel torch registers: the operator without autocast, given its inputs cast."""
    ours = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, KEYS["AutocastCUDA"]))

    def kernel(_: Any, *args: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(ours):
            return operator(*torch._library.custom_ops._cast(args, BACKEND, dtype))

    return kernel


def check_autograd(original: Callable[..., Any], op: Any, args: Any, kwargs: Any) -> Any:
    """A part of ``torch.library.opcheck`` that knows no other device than CUDA and a few more.

    torch's own check is asked with tensors of the CPU in place of those of the device.
    """
    leaves = [leaf for leaf in torch.utils._pytree.arg_tree_leaves(*args, **kwargs) if isinstance(leaf, torch.Tensor)]
    if not any(leaf.device.type == BACKEND for leaf in leaves):
        return original(op, args, kwargs)
    if torch._C._dispatch_has_kernel_for_dispatch_key(op.name(), "AutogradPrivateUse1"):
        return None
    stand_ins = {id(leaf): torch.empty(0, requires_grad=leaf.requires_grad) for leaf in leaves}

    def replace(leaf: Any) -> Any:
        return stand_ins.get(id(leaf), leaf)

    class Operator(torch._ops.OpOverload):  # type: ignore[type-arg]
        def __init__(self) -> None:
            self.name = op.name

        def __call__(self, /, *_: Any, **__: Any) -> Any:
            return torch.utils._pytree.tree_map(replace, op(*args, **kwargs))

    as_on_cpu = torch.utils._pytree.tree_map(replace, (tuple(args), dict(kwargs)))
    return original(Operator(), *as_on_cpu)


def adopt() -> Callable[[], None]:
    """Kernels registered for CUDA before activation, which no MUSA tensor would reach, for the MUSA device too."""
    from torch._library.custom_ops import OPDEFS
    from torch.library import _impls

    for operator in list(OPDEFS.values()):
        kernels = operator._backend_fns
        if "cuda" in kernels and BACKEND not in kernels:
            operator.register_kernel(BACKEND)(kernels["cuda"])
    libraries: list[Any] = []
    users = sorted(_impls - _by_modules_of_torch())
    lost = [name for name in users if name.rpartition("/")[2] in KEYS and not _adopted(name, libraries)]
    if lost:
        tell(
            f"registered for CUDA before torchada was active, and lost on the MUSA device: {', '.join(lost)}. This "
            "torch cannot hand out registered kernels: activate torchada before they are registered."
        )

    def undo() -> None:
        for library in libraries:
            library._destroy()

    return undo


def _adopted(name: str, libraries: list[Any]) -> bool:
    """Register the kernel *name* (``namespace/operator/key``) anew; False where this torch cannot hand it out."""
    namespace, operator, key = name.split("/")
    qualified, ours = f"{namespace}::{operator}", KEYS[key]
    if torch._C._dispatch_has_kernel_for_dispatch_key(qualified, ours):
        return True
    if not hasattr(torch.library, "get_kernel"):  # before torch 2.9
        return False
    kernel = torch._C._dispatch_get_computed_kernel_for_dispatch_key(qualified, getattr(torch._C.DispatchKey, key))
    library = torch.library.Library(namespace, "FRAGMENT")
    library.impl(operator, kernel.call_boxed, ours, with_keyset=True)
    libraries.append(library)
    return True


def _by_modules_of_torch() -> set[str]:
    """The kernels (``namespace/operator/key``) of the libraries that modules of torch keep."""
    kept = (vars(module).values() for name, module in list(sys.modules.items()) if name.startswith("torch."))
    libraries = (value for values in kept for value in list(values) if issubclass(type(value), torch.library.Library))
    return {kernel for library in libraries for kernel in library._op_impls}
