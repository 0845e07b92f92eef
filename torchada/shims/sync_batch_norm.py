"""``torch.nn.SyncBatchNorm``: the five operators it is made of have no kernel outside CUDA's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules._functions import SyncBatchNorm

from ..redirect import redirect_python
from .device import BACKEND

Original = Callable[..., Any]


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """In the type that sums are made in."""
    return tensor.float() if tensor.dtype in (torch.float16, torch.bfloat16) else tensor


def _others(tensor: torch.Tensor) -> list[int]:
    """The dimensions that are summed over: all but that of the channels."""
    return [dim for dim in range(tensor.dim()) if dim != 1]


def _per_channel(values: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    return values.view(1, -1, *[1] * (like.dim() - 2))


def batch_norm_stats(input: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
    variance, mean = torch.var_mean(_wide(input), _others(input), correction=0)
    return mean, torch.rsqrt(variance + eps)


def batch_norm_gather_stats_with_counts(
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    running_mean: torch.Tensor | None,
    running_var: torch.Tensor | None,
    momentum: float,
    eps: float,
    counts: torch.Tensor,
) -> tuple[torch.Tensor, torch.Tensor]:
    """From the mean and spread of each process (a row each) to those of all."""
    share = counts.to(mean.dtype).view(-1, 1)
    count = share.sum()
    whole = (mean * share).sum(0) / count
    variance = ((invstd.square().reciprocal() - eps + (mean - whole).square()) * share).sum(0) / count
    if running_mean is not None:
        running_mean.lerp_(whole.to(running_mean.dtype), momentum)
    if running_var is not None:
        running_var.lerp_((variance * (count / (count - 1))).to(running_var.dtype), momentum)
    return whole, torch.rsqrt(variance + eps)


def batch_norm_elemt(
    input: torch.Tensor,
    weight: torch.Tensor | None,
    bias: torch.Tensor | None,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    eps: float,
) -> torch.Tensor:
    factor = invstd if weight is None else invstd * weight
    result = (_wide(input) - _per_channel(mean, input)) * _per_channel(factor, input)
    if bias is not None:
        result = result + _per_channel(_wide(bias), input)
    return result.to(input.dtype)


def batch_norm_backward_reduce(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    input_g: bool,
    weight_g: bool,
    bias_g: bool,
) -> tuple[torch.Tensor | None, ...]:
    gradient = _wide(grad_out)
    total = gradient.sum(_others(input))
    product = (gradient * (_wide(input) - _per_channel(mean, input))).sum(_others(input))
    dtype = total.dtype if weight is None else weight.dtype
    return (
        total if input_g else None,
        product if input_g else None,
        (product * invstd).to(dtype) if weight_g else None,
        total.to(dtype) if bias_g else None,
    )


def batch_norm_backward_elemt(
    grad_out: torch.Tensor,
    input: torch.Tensor,
    mean: torch.Tensor,
    invstd: torch.Tensor,
    weight: torch.Tensor | None,
    sum_dy: torch.Tensor,
    sum_dy_xmu: torch.Tensor,
    count: torch.Tensor,
) -> torch.Tensor:
    number = count.sum()
    slope = _per_channel(sum_dy_xmu / number * invstd.square(), input)
    centred = _wide(grad_out) - _per_channel(sum_dy / number, input)
    factor = invstd if weight is None else invstd * weight
    result = (centred - (_wide(input) - _per_channel(mean, input)) * slope) * _per_channel(factor, input)
    return result.to(input.dtype)


OPERATORS = (
    batch_norm_stats,
    batch_norm_gather_stats_with_counts,
    batch_norm_elemt,
    batch_norm_backward_reduce,
    batch_norm_backward_elemt,
)


def install() -> Callable[[], None]:
    """Register the operators that torch_musa has no kernel of, when the layer is first used."""
    libraries: list[torch.library.Library] = []
    turn = threading.Lock()

    def register() -> None:
        with turn:
            if libraries:
                return
            library = torch.library.Library("aten", "IMPL")
            for operator in OPERATORS:
                name = operator.__name__
                if not torch._C._dispatch_has_kernel_for_dispatch_key(f"aten::{name}", "PrivateUse1"):
                    library.impl(name, operator, "PrivateUse1")
            libraries.append(library)

    def forward(original: Original, ctx: Any, input: torch.Tensor, *rest: Any) -> Any:
        if not libraries and input.device.type == BACKEND:
            register()
        return original(ctx, input, *rest)

    restore = redirect_python(SyncBatchNorm.forward, forward)

    def undo() -> None:
        restore()
        for library in libraries:
            library._destroy()
        libraries.clear()

    return undo
