"""Operators that exist in Python only, such as ``torch.cond``, and random numbers of compiled programs.

What torch says there of CUDA by name holds for the MUSA device.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

import torch
from torch._C import DispatchKey
from torch._ops import HigherOrderOperator, _higher_order_ops

from .device import BACKEND
from .library import KEYS_OF_CUDA

_AUTOCAST = KEYS_OF_CUDA[DispatchKey.AutocastCUDA]


def py_impl(original: Callable[..., Any], self: Any, k: Any) -> Callable[..., Any]:
    """``operator.py_impl(DispatchKey.CUDA)``: the kernel is the MUSA device's too."""
    register = original(self, k)
    ours = KEYS_OF_CUDA.get(k) if isinstance(k, DispatchKey) else None
    if ours is None:
        return register  # type: ignore[no-any-return]

    def both(kernel: Callable[..., Any]) -> Callable[..., Any]:
        register(kernel)
        if ours not in self.py_kernels:
            _add(self, ours, kernel)
        return kernel

    return both


def _add(operator: Any, key: Any, kernel: Callable[..., Any]) -> None:
    if key == _AUTOCAST:
        kernel = _without_autocast(kernel)
    operator.py_kernels[key] = kernel
    operator._dispatch_cache.clear()
    if isinstance(operator, HigherOrderOperator):
        operator.non_fallthrough_keys = operator.non_fallthrough_keys.add(key)


def _without_autocast(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """A kernel that goes on below CUDA's autocast has to go on below that of the MUSA device."""

    @functools.wraps(kernel)
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(_AUTOCAST)):
            return kernel(*args, **kwargs)

    return wrapper


def adopt() -> Callable[[], None]:
    """Operators made before activation; and autocast, which torch lets every such operator pass for CUDA."""
    passed = torch._ops._HIGHER_ORDER_OP_DEFAULT_FALLTHROUGH_DISPATCH_KEYS
    undo: list[Callable[[], Any]] = []
    if _AUTOCAST not in passed:
        passed.append(_AUTOCAST)
        undo.append(functools.partial(passed.remove, _AUTOCAST))
    for operator in list(_higher_order_ops.values()):
        undo.append(functools.partial(setattr, operator, "non_fallthrough_keys", operator.non_fallthrough_keys))
        if not operator.non_fallthrough_keys.has(DispatchKey.AutocastCUDA):
            operator.fallthrough(_AUTOCAST)
        for theirs, ours in KEYS_OF_CUDA.items():
            if theirs in operator.py_kernels and ours not in operator.py_kernels:
                _add(operator, ours, operator.py_kernels[theirs])
                undo.append(functools.partial(operator.py_kernels.pop, ours, None))

    def undo_all() -> None:
        for step in reversed(undo):
            step()

    return undo_all


def rng_device(original: Callable[..., Any], args: Any, kwargs: Any) -> str | None:
    """Operators that keep random states choose by this device type among functions; CUDA's ask ``torch.cuda``."""
    device = original(args, kwargs)
    if not kwargs.get("device") and any(isinstance(arg, torch.Tensor) and arg.device.type == BACKEND for arg in args):
        return "cuda"  # an older torch looks only for types it knows
    return "cuda" if device == BACKEND else device


def rng_state(original: Callable[..., Any], fake_mode: Any = None) -> tuple[torch.Tensor, torch.Tensor]:
    """Seed and offset of the device's generator, which torch reads only where ``torch.cuda.is_available()``."""
    with fake_mode or contextlib.nullcontext():
        return torch.tensor(torch.cuda.initial_seed()), torch.tensor(torch.cuda._get_rng_state_offset())


def counter_based(original: Callable[..., Any], device: Any) -> None:
    """Raises for devices whose generator has no counter; that of the MUSA device has one."""
    if device.type != BACKEND:
        original(device)


def philox_rand() -> Callable[[], None]:
    """``rngprims::philox_rand``: numbers from a seed and an offset, which torch refuses for all but CUDA by name."""
    kernels = torch._library.custom_ops.OPDEFS["rngprims::philox_rand"]._backend_fns
    theirs = kernels[None]

    @functools.wraps(theirs)
    def kernel(size: Any, seed: Any, offset: Any, stride: Any, device: Any = None, dtype: Any = None) -> Any:
        if device is None or device.type != BACKEND:
            return theirs(size, seed, offset, stride, device, dtype)
        with torch.random.fork_rng([device]), torch.cuda.device(device):
            torch._prims_common.CUDARngStateHelper.set_torch_state_tensor(seed, offset)
            numbers = torch.rand(size, device=device, dtype=dtype)
            return numbers, torch.tensor(torch.cuda._get_rng_state_offset()) - offset

    kernels[None] = kernel

    def undo() -> None:
        kernels[None] = theirs

    return undo
