"""Dynamo's variables for torch_musa."""

from . import torch  # noqa: F401
