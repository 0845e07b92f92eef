"""What porting a text gives."""

from __future__ import annotations

from typing import NamedTuple


class Change(NamedTuple):
    """In *line* (from 1), *old* became *new*, because of *evidence*."""

    line: int
    old: str
    new: str
    evidence: str


class Problem(NamedTuple):
    """In *line* (from 1), *name* needs a person, because of *why*. A *note* is no reason to fail a check."""

    line: int
    name: str
    why: str
    note: bool = False


class Ported(NamedTuple):
    """A ported *text* and what happened to it, in order of place."""

    text: str
    changes: list[Change]
    problems: list[Problem]
