"""FSDP at work: torch's own functions, which know MUSA's device module as it is."""

from torch.distributed.fsdp._runtime_utils import _init_streams, _reduce_grad

__all__ = ["_apply_runtime_utils_patch", "_init_streams", "_reduce_grad"]

_TORCH_MUSA_FSDP_DEFAULT_STREAM_ONLY = False
_TORCH_MUSA_FSDP_FORCE_SYNC_ALL_REDUCE = False


def _apply_runtime_utils_patch():
    """Nothing: torch's own works on the simulated device."""
