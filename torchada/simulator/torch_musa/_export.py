"""Loading models compiled ahead of time; not simulated yet."""

from ._not_simulated import refuse


def aot_load(so_path, device):
    """Load a compiled model."""
    refuse("torch_musa._export.aot_load", "inductor backend")
