"""What the vendor's torch has more than torch: operators and modules that come with its patched sources.

Only those whose meaning is certain: RMS norm, SwiGLU and FSDP2's operators. The first two are written with torch's
operators, so that they have gradients. `rope`, `gated_silu` and the vendor's attention and loss operators are not
simulated.
"""

import sys
from typing import Any

import torch

from ._late import when_imported

_SCHEMAS = (
    "_fused_rmsnorm_forward(Tensor input, int[] normalized_shape, float eps, Tensor? weight=None) -> (Tensor, Tensor)",
    "_fused_rmsnorm_backward(Tensor grad_out, Tensor invvar, Tensor input, int[] normalized_shape, float eps, "
    "Tensor? weight=None) -> (Tensor, Tensor)",
    "swish_glu(Tensor input) -> Tensor",
    "_fused_swiglu_forward(Tensor input) -> Tensor",
    "_fused_swiglu_backward(Tensor grad_out, Tensor input) -> Tensor",
)
_library: Any = None  # the definitions live as long as this does


def _dims(normalized_shape):
    return tuple(range(-len(normalized_shape), 0))


def _fused_rmsnorm_forward(input, normalized_shape, eps, weight=None):
    """(normalized, 1 / root of the mean square): input * invvar * weight over the last dimensions."""
    wide = input.float() if input.dtype in (torch.half, torch.bfloat16) else input
    invvar = torch.rsqrt(wide.square().mean(_dims(normalized_shape), keepdim=True) + eps)
    out = wide * invvar
    if weight is not None:
        out = out * weight
    return out.to(input.dtype), invvar.reshape(input.shape[: input.dim() - len(normalized_shape)])


def _fused_rmsnorm_backward(grad_out, invvar, input, normalized_shape, eps, weight=None):
    """(gradient of the input, gradient of the weight; an empty tensor without weight)."""
    wide = input.float() if input.dtype in (torch.half, torch.bfloat16) else input
    grad, dims = grad_out.to(wide.dtype), _dims(normalized_shape)
    scale = invvar.reshape(invvar.shape + (1,) * len(normalized_shape))
    normal = wide * scale
    inner = grad if weight is None else grad * weight
    grad_input = scale * (inner - normal * (inner * normal).mean(dims, keepdim=True))
    if weight is None:
        return grad_input.to(input.dtype), input.new_empty(0)
    over = tuple(range(input.dim() - len(normalized_shape)))
    grad_weight = (grad * normal).sum(over) if over else grad * normal
    return grad_input.to(input.dtype), grad_weight.to(weight.dtype)


def swish_glu(input):
    """silu(first half) * second half of the last dimension, which must be even."""
    if input.dim() == 0 or input.size(-1) % 2:
        raise RuntimeError(f"swish_glu needs a last dimension of even size, but the shape is {tuple(input.shape)}")
    gate, value = input.chunk(2, -1)
    return torch.nn.functional.silu(gate) * value


_fused_swiglu_forward = swish_glu


def _fused_swiglu_backward(grad_out, input):
    """Gradient of the input of `swish_glu`."""
    gate, value = input.chunk(2, -1)
    return torch.cat(
        (torch.ops.aten.silu_backward(grad_out * value, gate), grad_out * torch.nn.functional.silu(gate)), -1
    )


class SwishGLU(torch.nn.Module):
    """silu(first half) * second half of the last dimension."""

    def forward(self, input):
        """Shape (..., 2 * n) to (..., n)."""
        return torch.ops.aten.swish_glu(input)


_COLLECTIVES = "torch.distributed.fsdp._fully_shard._fsdp_collectives"
_FSDP = {
    "all_gather_copy_in": "all_gather_copy_in_cuda",
    "chunk_cat": "chunk_cat",
    "split_with_sizes_copy": "split_with_sizes_copy",
}


def _register_collectives():
    # An older torch has these for devices that it names; the vendor's build of it adds its own.
    module: Any = sys.modules[_COLLECTIVES]
    for name, kernel in _FSDP.items():
        if not torch._C._dispatch_has_kernel_for_dispatch_key(f"fsdp::{name}", "PrivateUse1"):
            module.lib.impl(name, getattr(module, kernel), "PrivateUse1")


def set_up():
    """Put the operators into torch.ops.aten and the rest into torch.nn."""
    when_imported(_COLLECTIVES, _register_collectives)
    global _library
    if _library is not None:
        return
    _library = torch.library.Library("aten", "FRAGMENT")
    for schema in _SCHEMAS:
        name = schema.partition("(")[0]
        _library.define(schema)
        _library.impl(name, globals()[name], "CompositeImplicitAutograd")
    SwishGLU.__module__ = "torch.nn.modules.activation"
    for module in (torch.nn, torch.nn.modules, torch.nn.modules.activation):
        module.SwishGLU = SwishGLU
    torch.nn.functional.swish_glu = torch.ops.aten.swish_glu.default  # type: ignore[attr-defined]
