"""Dynamo backends of torch_musa."""

from . import musagraphs  # noqa: F401
