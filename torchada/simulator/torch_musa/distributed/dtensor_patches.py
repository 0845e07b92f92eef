"""DTensor for the vendor's loss operators, which are not simulated."""

import torch

from .._not_simulated import stand_ins

aten = torch.ops.aten
_musa_customized_loss_ops: dict = {}


def _apply_dtensor_patches():
    """Nothing: there is no operator of the vendor's to tell DTensor about."""


globals().update(
    stand_ins(
        __name__,
        "fused loss (torch.distributed.tensor.parallel.loss_parallel works)",
        {"_cross_entropy_loss_2d_choice_handler": "(op_call, args, kwargs)"},
    )
)
