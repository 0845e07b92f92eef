"""DTensor's sharding of the vendor's operators, and the names of torch it is written with."""

# ruff: noqa: F401, UP035  (torch_musa has these names)

from collections.abc import Sequence
from typing import List, Optional

from torch.distributed.tensor._dtensor_spec import DTensorSpec
from torch.distributed.tensor._op_schema import OpSchema, OpStrategy, RuntimeSchemaInfo
from torch.distributed.tensor._ops._math_ops import map_placements_after_reduction
from torch.distributed.tensor._ops.utils import generate_redistribute_costs, register_op_strategy
from torch.distributed.tensor._utils import normalize_to_torch_size

from . import _ops
from ._ops import fused_rmsnorm_bwd_strategy, fused_rmsnorm_strategy

__all__ = ["fused_rmsnorm_bwd_strategy", "fused_rmsnorm_strategy"]
