"""Version of MCCL, the vendor's collective library."""

import torch_musa

__all__ = ["version"]


def version() -> tuple:
    """(major, minor, patch), with a suffix string as fourth when there is one."""
    number = torch_musa._MUSAC._mccl_version()
    major, minor, patch = (number >> 32) & 0xFFFF, (number >> 16) & 0xFFFF, number & 0xFFFF
    suffix = torch_musa._MUSAC._mccl_version_suffix().decode("utf-8")
    return (major, minor, patch, suffix) if suffix else (major, minor, patch)
