"""Shapes of the vendor's operators, for tracing without values."""

import torch


def fused_rmsnorm_forward(inp, normalized_shape, eps, weight=None):
    """Empty tensors of the shapes of the fused RMS norm."""
    wide = torch.float32 if inp.dtype in (torch.half, torch.bfloat16) else inp.dtype
    rows = inp.shape[: inp.dim() - len(normalized_shape)]
    return torch.empty_like(inp), inp.new_empty(rows, dtype=wide)


def fused_rmsnorm_backward(grad_out, invvar, inp, normalized_shape, eps, weight=None):
    """Empty tensors of the shapes of its gradients."""
    return torch.empty_like(inp), inp.new_empty(0) if weight is None else torch.empty_like(weight)
