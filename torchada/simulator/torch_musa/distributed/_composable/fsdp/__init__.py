"""FSDP2 of the vendor; on the simulated device torch's own runs."""

from . import custom_overlap_patch, patch  # noqa: F401
