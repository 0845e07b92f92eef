"""Quantized convolution, addition and SiLU. The result has `scale` and `zero_point` of the module."""

import torch
import torch.ao.nn.quantized as nnq
import torch.nn.functional as F
from torch.ao.nn.quantized.modules.conv import _reverse_repeat_padding

from ...modules import fused

__all__ = ["ConvAddSiLU2d"]


class ConvAddSiLU2d(nnq.Conv2d):
    """Quantized convolution, addition and SiLU."""

    _FLOAT_MODULE = fused.ConvAddSiLU2d

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
        device=None,
        dtype=None,
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
            device=device,
            dtype=dtype,
        )

    def forward(self, input, extra_input):
        """SiLU of the sum of the quantized convolution and `extra_input`; shape (N, C, H, W)."""
        if len(input.shape) != 4:
            raise ValueError("Input shape must be `(N, C, H, W)`!")
        values, padding = input.dequantize(), self.padding
        if self.padding_mode != "zeros":
            values = F.pad(values, _reverse_repeat_padding(self.padding), mode=self.padding_mode)
            padding = (0, 0)
        weight, bias = self._weight_bias()
        weight = weight.dequantize().to(values.device)
        bias = None if bias is None else bias.to(values.device)
        out = F.conv2d(values, weight, bias, self.stride, padding, self.dilation, self.groups)
        return torch.quantize_per_tensor(
            F.silu(out + extra_input.dequantize()), float(self.scale), int(self.zero_point), input.dtype
        )

    def _get_name(self):
        return "QuantizedConvAddSiLU2d"

    @classmethod
    def from_float(cls, mod):
        """The quantized module for an observed one."""
        return super().from_float(mod)

    @classmethod
    def from_reference(cls, ref_qconv, output_scale, output_zero_point):
        """The quantized module for a reference one."""
        return super().from_reference(ref_qconv[0], output_scale, output_zero_point)
