"""FSDP: the gradient scaler. torch's own code for sharding works on MUSA as it is."""

from ..._late import lazily
from .sharded_grad_scaler import ShardedGradScaler

__all__ = ["ShardedGradScaler"]

__getattr__, __dir__ = lazily(__name__, {name: (f".{name}", None) for name in ("_init_utils", "_runtime_utils")})
