"""Convolutions with SiLU whose weights pass a fake quantizer."""

import torch.ao.nn.intrinsic as nni
import torch.ao.nn.intrinsic.qat as nniqat
import torch.ao.nn.qat as nnqat
import torch.nn.functional as F
from torch import nn

from ...modules import fused

__all__ = ["ConvBnSiLU2d", "ConvSiLU2d"]


class ConvBnSiLU2d(nniqat.ConvBn2d):
    """Conv2d, BatchNorm2d and SiLU."""

    _FLOAT_MODULE = fused.ConvBnSiLU2d
    _FLOAT_CONV_MODULE = nn.Conv2d
    _FLOAT_BN_MODULE = nn.BatchNorm2d
    _FLOAT_RELU_MODULE = nn.SiLU  # the name torch's base class reads
    _FUSED_FLOAT_MODULE = fused.ConvSiLU2d

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=None,
        padding_mode="zeros",
        eps=1e-05,
        momentum=0.1,
        freeze_bn=False,
        qconfig=None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride,
            padding,
            dilation,
            groups,
            bias,
            padding_mode,
            eps,
            momentum,
            freeze_bn,
            qconfig,
        )

    def forward(self, input):
        """SiLU of the normalized convolution."""
        return F.silu(self._forward(input))

    @classmethod
    def from_float(cls, mod):
        """The training module for a float one."""
        return super().from_float(mod)


class ConvSiLU2d(nnqat.Conv2d, nni._FusedModule):
    """Conv2d and SiLU. `qconfig` is needed."""

    _FLOAT_MODULE = fused.ConvSiLU2d
    _FLOAT_CONV_MODULE = nn.Conv2d
    _FLOAT_BN_MODULE = None
    _FLOAT_SILU_MODULE = nn.SiLU

    def __init__(
        self,
        in_channels,
        out_channels,
        kernel_size,
        stride=1,
        padding=0,
        dilation=1,
        groups=1,
        bias=True,
        padding_mode="zeros",
        qconfig=None,
    ):
        super().__init__(
            in_channels,
            out_channels,
            kernel_size,
            stride=stride,
            padding=padding,
            dilation=dilation,
            groups=groups,
            bias=bias,
            padding_mode=padding_mode,
            qconfig=qconfig,
        )

    def forward(self, input):
        """SiLU of the convolution."""
        return F.silu(self._conv_forward(input, self.weight_fake_quant(self.weight), self.bias))

    @classmethod
    def from_float(cls, mod):
        """The training module for a float one."""
        return super().from_float(mod)
