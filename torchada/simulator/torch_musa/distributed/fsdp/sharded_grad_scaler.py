"""The gradient scaler for FSDP, with MUSA as its device."""

import torch.distributed as dist
from torch.distributed.fsdp import sharded_grad_scaler as _torch

from ...core.amp.grad_scaler import GradScaler  # noqa: F401  (a name of this module)

OptState = _torch.OptState
_MultiDeviceReplicator = _torch._MultiDeviceReplicator
_GeneralMultiDeviceReplicator = _torch._GeneralMultiDeviceReplicator
_is_supported_device = _torch._is_supported_device
_refresh_per_optimizer_state = _torch._refresh_per_optimizer_state
log = _torch.logger


class ShardedGradScaler(_torch.ShardedGradScaler):
    """torch's ShardedGradScaler for MUSA; unlike torch's it takes no device."""

    def __init__(
        self,
        init_scale=2.0**16,
        backoff_factor=0.5,
        growth_factor=2.0,
        growth_interval=2000,
        enabled=True,
        process_group=dist.group.WORLD,
    ):
        super().__init__("musa", init_scale, backoff_factor, growth_factor, growth_interval, enabled, process_group)


vars(_torch)["ShardedGradScaler"] = ShardedGradScaler
