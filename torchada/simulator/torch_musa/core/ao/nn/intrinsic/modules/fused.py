"""Containers that quantization replaces by the fused module."""

from torch.ao.nn.intrinsic.modules.fused import _FusedModule
from torch.nn import BatchNorm2d, Conv2d, SiLU
from torch.nn.utils.parametrize import type_before_parametrizations

__all__ = ["ConvAddSiLU2d", "ConvBnSiLU2d", "ConvSiLU2d"]


def _check(modules, types):
    found = [type_before_parametrizations(module) for module in modules]
    if found != list(types):
        named = [", ".join(one.__name__ for one in some) for some in (types, found)]
        raise AssertionError(f"expected the modules {named[0]}, not {named[1]}")


class ConvBnSiLU2d(_FusedModule):
    """Conv2d, BatchNorm2d and SiLU, in this order."""

    def __init__(self, conv, bn, silu):
        _check((conv, bn, silu), (Conv2d, BatchNorm2d, SiLU))
        super().__init__(conv, bn, silu)


class ConvSiLU2d(_FusedModule):
    """Conv2d and SiLU, in this order."""

    def __init__(self, conv, silu):
        _check((conv, silu), (Conv2d, SiLU))
        super().__init__(conv, silu)


class ConvAddSiLU2d(_FusedModule):
    """SiLU of the sum of a convolution and another tensor; `add` makes the sum."""

    def __init__(self, conv, add, silu):
        super().__init__(conv)
        self.add = add
        self.silu = silu

    def forward(self, x1, x2):
        """silu(add(conv(x1), x2))."""
        return self.silu(self.add(self[0](x1), x2))
