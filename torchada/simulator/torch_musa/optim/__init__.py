"""Optimizers that take one step for all parameters in one kernel."""

import torch

from . import fused_adam, fused_adamw, fused_lamb
from .fused_adam import FusedAdam
from .fused_adamw import FusedAdamW
from .fused_lamb import FusedLAMB

__all__ = ["FusedAdam", "FusedAdamW", "FusedLAMB", "fused_adam", "fused_adamw", "fused_lamb"]

# torch itself has told DTensor how to shard these.
__fused_ops = [
    torch.ops.aten._fused_adam_.default,
    torch.ops.aten._fused_adam_.tensor_lr,
    torch.ops.aten._fused_adamw_.default,
    torch.ops.aten._fused_adamw_.tensor_lr,
]
