"""Collectives of distributed checkpoints: torch's own."""

from torch.distributed.checkpoint.utils import _DistWrapper

reduce_scatter = _DistWrapper.reduce_scatter


def _apply_dist_wrapper_patch():
    """Nothing: torch's own works on the simulated device."""
