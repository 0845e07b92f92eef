"""Set-up of FSDP: torch's own functions, which know MUSA's device module as it is."""

from torch.distributed.fsdp._init_utils import (
    _get_compute_device,
    _get_device_from_device_id,
    _init_device_handle,
    _materialize_meta_module,
)

__all__ = [
    "_apply_init_utils_patch",
    "_get_compute_device",
    "_get_device_from_device_id",
    "_init_device_handle",
    "_materialize_meta_module",
]


def _apply_init_utils_patch():
    """Nothing: torch's own works on the simulated device."""
