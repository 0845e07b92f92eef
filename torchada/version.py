"""Versions as vendors write them, compared by their public part."""

from __future__ import annotations

import operator
from collections.abc import Callable

from packaging.version import InvalidVersion, Version

_OPERATORS: dict[str, Callable[[Version, Version], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    "==": operator.eq,
    "!=": operator.ne,
    ">=": operator.ge,
    ">": operator.gt,
}
_LOWEST = Version("0.dev0")


def public(text: str | None) -> Version:
    """``"2.11.0.post1+musa5.2.0"`` -> 2.11.0.post1. An unknown or unreadable version ranks lowest, so that a
    workaround stays on."""
    if text is None:
        return _LOWEST
    try:
        return Version(Version(text).public)
    except InvalidVersion:
        return _LOWEST


def compare(text: str | None, sign: str, bound: str) -> bool:
    """``compare("2.7.1+musa", "<", "2.9")``; *sign* is one of ``< <= == != >= >``."""
    return _OPERATORS[sign](public(text), Version(bound))
