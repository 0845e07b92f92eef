"""FSDP2 of the vendor."""

from . import fsdp  # noqa: F401
