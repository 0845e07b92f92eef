"""Device meshes: torch's own code, which knows MUSA's device module as it is."""

from .._not_simulated import stand_ins


def _apply_device_mesh_patch():
    """Nothing: torch's own works on the simulated device."""


globals().update(
    stand_ins(__name__, "mesh code of the vendor (torch's works)", {"_get_or_create_default_group": "(self)"})
)
