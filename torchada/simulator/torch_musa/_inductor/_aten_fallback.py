"""Operators inductor leaves to the device; not simulated: inductor's C++ kernels cover them."""

import torch

from .._not_simulated import stand_ins

aten = torch.ops.aten
_decomps_to_exclude: list = []


def _make_torch_musa_aten_fallback():
    """Nothing: no operator needs it on the simulated device."""


globals().update(
    stand_ins(
        __name__,
        "kernels of the vendor for inductor to fall back on",
        {"_fallback_to_aten": "(aten_ops, layout_constraint=None, warn=True)"},
    )
)
