"""Putting the quantization modules into torch.ao; not simulated yet."""

from ..._not_simulated import absent, refuse

__all__ = ["_register_ao_intrinsic_modules"]


def _register_ao_intrinsic_modules():
    refuse("torch_musa.core.ao.register_helper._register_ao_intrinsic_modules", "quantized modules")


__getattr__ = absent(__name__, {"nni", "nniq", "qat"}, "quantized modules")
