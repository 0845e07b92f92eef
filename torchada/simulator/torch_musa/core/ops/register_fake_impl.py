"""Shape functions of operators only the vendor's torch has; not simulated yet."""

from ..._not_simulated import refuse


def fused_rmsnorm_forward(inp, normalized_shape, eps, weight=None):
    """Shapes of the fused RMS norm."""
    refuse("torch_musa.core.ops.register_fake_impl.fused_rmsnorm_forward", "operators of the vendor's torch")


def fused_rmsnorm_backward(grad_out, invvar, inp, normalized_shape, eps, weight=None):
    """Shapes of its backward."""
    refuse("torch_musa.core.ops.register_fake_impl.fused_rmsnorm_backward", "operators of the vendor's torch")
