"""State dicts in host memory: torch's own functions, which pin memory for MUSA as they are."""

from torch.distributed._state_dict_utils import _create_cpu_state_dict

__all__ = ["_apply_state_dict_utils_patch", "_create_cpu_state_dict"]


def _apply_state_dict_utils_patch():
    """Nothing: torch's own works on the simulated device."""
