"""Putting the modules for quantization beside torch's own."""

import torch

from .nn.intrinsic import modules as nni
from .nn.intrinsic import qat
from .nn.intrinsic import quantized as nniq

__all__ = ["_register_ao_intrinsic_modules"]


def _register_ao_intrinsic_modules():
    intrinsic = torch.ao.nn.intrinsic
    for here, there in ((nni, intrinsic), (nniq, intrinsic.quantized), (qat, intrinsic.qat)):
        for name in here.__all__:
            setattr(there, name, getattr(here, name))
