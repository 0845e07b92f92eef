"""Kernels of the vendor's optimizers, here from torch's own operators.

The arguments of the fused Adam kernels are those of `torch._fused_adam_`; those over lists of tensors take
`(chunk_size, noop_flag_buffer, tensor_lists, ...)` and do nothing when the flag is not zero.
"""

import torch

from ._not_simulated import refuse

fused_adam = torch._fused_adam_
fused_adamw = torch._fused_adamw_


def _norm(tensors):
    if not tensors:
        return torch.zeros(1, device="musa")
    return torch.stack([torch.linalg.vector_norm(t, dtype=torch.float32) for t in tensors]).norm().reshape(1)


def multi_tensor_l2norm(chunk_size, noop_flag_buffer, tensor_lists, per_tensor=False):
    """(norm of all tensors together, norm of each or None), in float32."""
    (tensors,) = tensor_lists
    each = torch.stack([torch.linalg.vector_norm(t, dtype=torch.float32) for t in tensors]) if per_tensor else None
    return _norm(tensors), each


def multi_tensor_lamb(
    chunk_size,
    noop_flag_buffer,
    tensor_lists,
    lr,
    beta1,
    beta2,
    eps,
    step,
    bias_correction,
    weight_decay,
    grad_averaging,
    mode,
    global_grad_norm,
    max_grad_norm,
    use_nvlamb,
):
    """One step of LAMB; `tensor_lists`: gradients, parameters, first and second moments. `mode` 1: decoupled decay."""
    if noop_flag_buffer.item() != 0:
        return
    beta3 = 1 - beta1 if grad_averaging else 1.0
    correction1 = 1 - beta1**step if bias_correction else 1.0
    correction2 = 1 - beta2**step if bias_correction else 1.0
    norm = global_grad_norm.float()
    clip = torch.where(norm > max_grad_norm, norm / max_grad_norm, torch.ones_like(norm))
    for grad, param, exp_avg, exp_avg_sq in zip(*tensor_lists, strict=True):
        value, gradient = param.float(), grad.float() / clip
        if mode == 0:
            gradient = gradient + weight_decay * value
        exp_avg.copy_(exp_avg.float() * beta1 + gradient * beta3)
        exp_avg_sq.copy_(exp_avg_sq.float() * beta2 + gradient * gradient * (1 - beta2))
        update = (exp_avg.float() / correction1) / ((exp_avg_sq.float() / correction2).sqrt() + eps)
        if mode == 1:
            update = update + weight_decay * value
        rate = torch.full_like(norm, lr)
        if use_nvlamb or weight_decay != 0:
            size, change = value.norm(), update.norm()
            rate = rate * torch.where((size > 0) & (change > 0), size / change, torch.ones_like(size))
        param.copy_(value - rate * update)


def online_softmax(*args, **kwargs):
    """The fused softmax of the tensor-parallel loss."""
    refuse("torch_musa._ext.online_softmax", "fused loss (torch.nn.functional.cross_entropy works)")


def cross_entropy_loss(*args, **kwargs):
    """The fused tensor-parallel loss."""
    refuse("torch_musa._ext.cross_entropy_loss", "fused loss (torch.nn.functional.cross_entropy works)")
