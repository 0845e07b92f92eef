"""FSDP: the gradient scaler. torch's own code for sharding works on MUSA as it is."""

from .sharded_grad_scaler import ShardedGradScaler

__all__ = ["ShardedGradScaler"]
