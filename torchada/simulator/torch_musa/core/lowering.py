"""Lowering of quantized graphs; not simulated yet."""

from .._not_simulated import refuse


def apply_lowering_patch():
    """Put the lowering into torch.ao."""
    refuse("torch_musa.core.lowering.apply_lowering_patch", "quantized modules")


def lower_pt2e_quantized_to_x86(model, example_inputs):
    """Lower a quantized model."""
    refuse("torch_musa.core.lowering.lower_pt2e_quantized_to_x86", "quantized modules")
