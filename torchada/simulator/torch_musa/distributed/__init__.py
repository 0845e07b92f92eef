"""Distributed training on MUSA. The process group itself is in torch_musa.core.process_group.

torch's own code for DDP, FSDP, DTensor and checkpoints works on MUSA as it is, so that of the vendor's changes only
the gradient scaler of FSDP is made.
"""

import importlib

from .._late import when_imported

_SCALER = "torch.distributed.fsdp.sharded_grad_scaler"


def _apply_sharded_grad_scaler_patch():
    # The module puts its class in the place of torch's.
    when_imported(_SCALER, lambda: importlib.import_module(f"{__name__}.fsdp.sharded_grad_scaler"))


def _apply_distributed_patch():
    """Everything that is changed in torch.distributed."""
    _apply_sharded_grad_scaler_patch()


_PARTS = {
    "_composable",
    "_state_dict_utils",
    "device_mesh",
    "dist_wrapper_patch",
    "dtensor_patches",
    "fsdp",
    "loss",
    "tensor",
}
_OF_TENSOR = {
    "DTensorSpec",
    "List",
    "OpSchema",
    "OpStrategy",
    "Optional",
    "RuntimeSchemaInfo",
    "Sequence",
    "fused_rmsnorm_bwd_strategy",
    "fused_rmsnorm_strategy",
    "generate_redistribute_costs",
    "map_placements_after_reduction",
    "normalize_to_torch_size",
    "register_op_strategy",
}


def __getattr__(name):  # they import DTensor and FSDP
    if name in _PARTS:
        return importlib.import_module(f"{__name__}.{name}")
    if name in _OF_TENSOR:
        return getattr(importlib.import_module(f"{__name__}.tensor"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
