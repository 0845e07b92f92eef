"""torch.backends.cuda: CUDA's switches, as far as muDNN has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch_musa

_PLANS = 4096  # cuFFT's own capacity, where nobody set another
_plan_capacity: dict[int, int] = {}
_chosen: dict[str, Any] = {}


# ---------------------------------------------------------------- TF32: one switch of muDNN for all operators
def set_allow_tf32(original: Callable[..., None], allowed: bool) -> None:
    original(allowed)
    torch_musa._MUSAC._set_allow_tf32(allowed)


def set_matmul_precision(original: Callable[..., None], precision: str) -> None:
    """``torch.set_float32_matmul_precision``: "high" and "medium" allow TF32."""
    original(precision)
    if precision in ("highest", "high", "medium"):  # torch warns of another word and changes nothing
        torch_musa._MUSAC._set_allow_tf32(precision != "highest")


def set_fp32_precision(original: Callable[..., Any], backend: str, operation: str, precision: str) -> Any:
    """``torch.backends.cuda.matmul.fp32_precision = "tf32"`` and the wider settings that include it."""
    answer = original(backend, operation, precision)
    if backend in ("cuda", "generic") and operation in ("all", "matmul"):
        torch_musa._MUSAC._set_allow_tf32(precision == "tf32")
    return answer


# ---------------------------------------------------------------- cuFFT's plan cache: muFFT's cannot be asked
def plan_cache_size(original: Callable[..., int], device: int) -> int:
    return 0


def plan_cache_max_size(original: Callable[..., int], device: int) -> int:
    return _plan_capacity.get(device, _PLANS)


def set_plan_cache_max_size(original: Callable[..., None], device: int, max_size: int) -> None:
    if max_size < 0:
        raise RuntimeError(f"cuFFT plan cache size must be non-negative, but got {max_size}")
    _plan_capacity[device] = max_size


def clear_plan_cache(original: Callable[..., None], device: int) -> None:
    """Nothing to clear."""


# ---------------------------------------------------------------- preferred libraries: kept, nothing is chosen by them
def preferred_linalg_library(original: Callable[..., Any], backend: Any = None) -> Any:
    return _preferred(original, backend, "_LinalgBackends")


def preferred_blas_library(original: Callable[..., Any], backend: Any = None) -> Any:
    return _preferred(original, backend, "_BlasBackends")


def _preferred(original: Callable[..., Any], backend: Any, names: str) -> Any:
    if backend is None:
        return _chosen.get(names, original())
    try:
        answer = original(backend)
    except RuntimeError as error:
        known = getattr(torch.backends.cuda, names)
        if "compiled" not in str(error):  # an unknown name: torch's own complaint
            raise
        _chosen[names] = known[backend] if isinstance(backend, str) else backend
        return _chosen[names]
    _chosen.pop(names, None)
    return answer
