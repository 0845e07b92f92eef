"""Lowering of quantized graphs, where torch itself has it (torch.ao.quantization.pt2e, up to torch 2.9)."""

import importlib.util

from .._not_simulated import refuse

_WHERE = "torch.ao.quantization.pt2e"


def _torch_has_it():
    try:
        return importlib.util.find_spec(f"{_WHERE}.lowering") is not None
    except ModuleNotFoundError:  # not even the package
        return False


def apply_lowering_patch():
    """Put the lowering into torch.ao; nothing where torch has no place for it any more."""
    if _torch_has_it():
        import torch.ao.quantization.pt2e

        torch.ao.quantization.pt2e.lower_pt2e_quantized_to_x86 = lower_pt2e_quantized_to_x86  # type: ignore[attr-defined]


def lower_pt2e_quantized_to_x86(model, example_inputs):
    """Lower a quantized model, as torch does for the CPU. `example_inputs`: a tuple."""
    if not _torch_has_it():
        refuse("torch_musa.core.lowering.lower_pt2e_quantized_to_x86", f"{_WHERE} in this torch")
    from torch.ao.quantization.pt2e.lowering import lower_pt2e_quantized_to_x86 as lower

    return lower(model, example_inputs)
