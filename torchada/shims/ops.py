"""Operators that the backend lacks, computes wrongly, or computes with a wait that CUDA does not have."""

from __future__ import annotations

import math
import threading
import warnings
from collections.abc import Callable
from typing import Any, TypeGuard

import torch
from torch.overrides import has_torch_function, has_torch_function_unary

from .device import BACKEND

Original = Callable[..., Any]

FLOATS = frozenset({torch.float16, torch.bfloat16, torch.float32, torch.float64})
HALVES = frozenset({torch.float16, torch.bfloat16})


def _is_ours(tensor: Any) -> TypeGuard[torch.Tensor]:
    """A tensor of the backend whose type leaves the operator to torch (asked first: such a type sees every access)."""
    return isinstance(tensor, torch.Tensor) and not has_torch_function_unary(tensor) and tensor.device.type == BACKEND


# ---------------------------------------------------------------- one tensor
def _only(args: Any, kwargs: Any) -> Any:
    """The one argument of a call, or None."""
    return args[0] if len(args) == 1 and not kwargs else kwargs.get("input") if len(kwargs) == 1 and not args else None


def log_in_place(original: Original, /, *args: Any, **kwargs: Any) -> Any:
    """``log_`` of float64: out of place, and the result written back."""
    tensor = _only(args, kwargs)
    if not _is_ours(tensor) or tensor.dtype != torch.float64:
        return original(*args, **kwargs)
    if tensor.requires_grad and torch.is_grad_enabled():
        return tensor.copy_(tensor.clone().log())  # the gradient needs the values that are overwritten
    return tensor.copy_(tensor.log())


def _summed(input: Any, dim: Any, keepdim: bool = False, *, out: Any = None) -> tuple[Any, Any, bool, Any]:
    return input, dim, keepdim, out


def log_sum_exp(original: Original, /, *args: Any, **kwargs: Any) -> Any:
    """``logsumexp`` of float64 by its formula, without ``log_``."""
    try:
        tensor, dim, keepdim, out = _summed(*args, **kwargs)
    except TypeError:  # torch says it better
        return original(*args, **kwargs)
    if not _is_ours(tensor) or tensor.dtype != torch.float64 or has_torch_function_unary(out):
        return original(*args, **kwargs)
    if not tensor.numel():
        return torch.log(tensor.exp().sum(dim, keepdim), out=out)
    largest = tensor.detach().amax(dim, keepdim=True)
    largest = largest.where(largest.isfinite(), 0)
    total = (tensor - largest).exp().sum(dim, keepdim)
    return torch.add(total.log(), largest.reshape(total.shape), out=out)


def is_finite(original: Original, /, *args: Any, **kwargs: Any) -> Any:
    """``isfinite`` without the product of boolean tensors that torch makes it of, for which the host waits."""
    tensor = _only(args, kwargs)
    if not _is_ours(tensor) or tensor.dtype not in FLOATS or tensor.layout is not torch.strided or tensor.is_nested:
        return original(*args, **kwargs)
    return tensor.abs() < math.inf


def accumulate_in(original: Original, /, dtype: torch.dtype, device: torch.device | None) -> torch.dtype | None:
    """What ``linear_cross_entropy`` sums in when that is left to torch."""
    if device is not None and device.type == BACKEND and dtype in HALVES:
        return torch.float32
    return original(dtype, device)  # type: ignore[no-any-return]


# ---------------------------------------------------------------- matrix products with a result of another dtype
_healthy: dict[str, bool] = {}  # operator -> whether the backend's own kernel is right
_turn = threading.Lock()
_warned: set[str] = set()


def mm(original: Original, /, *args: Any, **kwargs: Any) -> Any:
    """``torch.mm(..., out_dtype=...)``"""
    return _product("mm", original, args, kwargs)


def bmm(original: Original, /, *args: Any, **kwargs: Any) -> Any:
    """``torch.bmm(..., out_dtype=...)``"""
    return _product("bmm", original, args, kwargs)


def _arguments(input: Any, mat2: Any, out_dtype: Any, *, out: Any = None) -> tuple[Any, Any, Any, Any]:
    return input, mat2, out_dtype, out


def _product(name: str, original: Original, args: Any, kwargs: Any) -> Any:
    try:
        left, right, dtype, out = _arguments(*args, **kwargs)
    except TypeError:  # torch says it better
        return original(*args, **kwargs)
    tensors = (left, right) if out is None else (left, right, out)
    if not isinstance(dtype, torch.dtype) or has_torch_function(tensors):
        return original(*args, **kwargs)
    if not all(_is_ours(tensor) and tensor.layout is torch.strided for tensor in tensors):
        return original(*args, **kwargs)
    return original(*args, **kwargs) if _is_healthy(name, original, left.device) else _emulate(name, *tensors, dtype)


def _emulate(name: str, left: torch.Tensor, right: torch.Tensor, *rest: Any) -> torch.Tensor:
    """The ordinary product of the arguments in the dtype of the result, with the checks of CUDA's kernel."""
    *out, dtype = rest
    if left.dtype != right.dtype:
        raise RuntimeError("input dtypes must be the same")
    if dtype != left.dtype and not (dtype == torch.float32 and left.dtype in HALVES):
        raise RuntimeError("out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs")
    if out and out[0].dtype != dtype:
        raise RuntimeError("out_dtype must be the same as the dtype of the provided out tensor")
    with torch._C._DisableAutocast():  # it has no opinion on this overload; the ordinary one it would make half again
        product = getattr(torch, name)
        return product(left.to(dtype), right.to(dtype), **({"out": out[0]} if out else {}))


def _is_healthy(name: str, original: Original, device: torch.device) -> bool:
    """Whether the backend's kernel can be used: tried once in a process, when no capture forbids it."""
    found = _healthy.get(name)
    if found is not None:
        return found
    with torch.cuda.device(device):
        capturing = torch.cuda.is_current_stream_capturing()
    if capturing:
        return _undecided(name, "a graph is being captured")
    if not _turn.acquire(blocking=False):
        return False  # another thread is at it
    try:
        tried = _try_in_clean_thread(name, original, device)
    finally:
        _turn.release()
    if isinstance(tried, bool):
        _healthy[name] = tried
        return tried
    return _undecided(name, f"{type(tried).__name__}: {tried}")


def _undecided(name: str, why: str) -> bool:
    if name not in _warned:
        _warned.add(name)
        warnings.warn(
            f"torchada could not try torch.{name} with out_dtype= on this device yet ({why}); "
            f"until it can, the ordinary torch.{name} computes it in that dtype",
            stacklevel=5,
        )
    return False


def _try_in_clean_thread(name: str, original: Original, device: torch.device) -> bool | Exception:
    """Modes, autocast, transforms, inference and gradients are a thread's own: a new one has none of them."""
    answer: list[bool | Exception] = []

    def attempt() -> None:
        try:
            answer.append(_is_right(name, original, device))
        except TypeError:
            answer.append(True)  # this torch has no such overload, and says so itself
        except NotImplementedError:
            answer.append(False)
        except Exception as error:
            answer.append(error)

    thread = threading.Thread(target=attempt, name="torchada-probe", daemon=True)
    try:
        thread.start()
    except RuntimeError as error:
        return error
    thread.join()
    return answer[0]


def _is_right(name: str, original: Original, device: torch.device) -> bool:
    """Products that need the bits of float32: 2049 is no float16, 257 no bfloat16."""
    for dtype, value in ((torch.float16, 2048), (torch.bfloat16, 256)):
        left = torch.zeros(16, 16, dtype=dtype, device=device)
        left[:, 0] = value
        left[:, 1] = 1
        right = torch.ones(16, 16, dtype=dtype, device=device)
        if name == "bmm":
            left, right = left.expand(2, 16, 16).contiguous(), right.expand(2, 16, 16).contiguous()
        result = original(left, right, out_dtype=torch.float32)
        if result.dtype != torch.float32 or not bool((result == value + 1).all()):
            return False
    return True
