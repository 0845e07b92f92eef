"""Operators of the vendor's torch."""

from . import register_fake_impl  # noqa: F401
