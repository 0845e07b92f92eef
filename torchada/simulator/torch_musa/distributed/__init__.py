"""Distributed training: the "mccl" process group and the changes for FSDP and DTensor; not simulated yet."""

from .._not_simulated import absent, refuse


def _apply_distributed_patch():
    refuse("torch_musa.distributed._apply_distributed_patch", "distributed part")


__getattr__ = absent(
    __name__,
    {
        "_composable",
        "_state_dict_utils",
        "device_mesh",
        "dist_wrapper_patch",
        "dtensor_patches",
        "fsdp",
        "fused_rmsnorm_bwd_strategy",
        "fused_rmsnorm_strategy",
        "loss",
        "tensor",
    },
    "distributed part",
)
