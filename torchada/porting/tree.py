"""Which files of a project are ported, and how they are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from .protect import MARKS, Protection, exclusions, is_cutlass

__all__ = ["MARKS", "SUFFIXES", "Skipped", "Tree", "decode", "encode", "exclusions", "own_headers", "portable", "walk"]

CODE = (".cu", ".cc", ".cpp", ".cxx", ".c", ".ixx", ".cppm")
HEADERS = (".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".ipp", ".tpp", ".txx", ".tcc")
SUFFIXES = frozenset(CODE + HEADERS)  # compared in lower case; .mu and .muh are MUSA already
LINK = "a link"


class Skipped(NamedTuple):
    """A *path* (relative to the root) that is not ported, and *why*."""

    path: str
    why: str


class Tree(NamedTuple):
    """The files of a project: *sources* to port, *others* to copy (both relative to the root), *skipped* ones."""

    sources: list[str]
    others: list[str]
    skipped: list[Skipped]


def walk(root: Path, exclude: str | None = None, output: Path | None = None, guard: Protection | None = None) -> Tree:
    """The files under *root*. Links are never followed; nested checkouts, version control, installed packages and what
    *exclude* (as TORCHADA_EXCLUDE_DIRS spells it) names stay as they are; *output* is stepped over. *guard*: all that
    made already.

    NotADirectoryError: *root* is no folder. PermissionError: *root* cannot be read.
    """
    guard = guard or Protection(exclude, [output] if output else [])
    real = os.path.realpath(root)
    if why := guard.whole(real):
        return Tree([], [], [Skipped(".", why)])
    if any(is_cutlass(place) for place in (real, os.path.dirname(real))):
        guard.cutlass = False  # somebody ports CUTLASS itself
    tree = Tree([], [], [])
    for _, relative, entries in _folders(real, tree.skipped):
        below: set[str] = set()
        for entry in entries:
            place = os.path.join(relative, entry.name) if relative else entry.name
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError as error:
                tree.skipped.append(Skipped(place, f"cannot be read: {error.strerror}"))
                continue
            if stat.S_ISLNK(mode):
                tree.skipped.append(Skipped(place, LINK))
            elif stat.S_ISDIR(mode):
                if entry.path in guard.apart:
                    continue
                if why := guard.folder(entry.path):
                    tree.skipped.append(Skipped(place, why))
                else:
                    below.add(entry.name)
            elif not stat.S_ISREG(mode):
                tree.skipped.append(Skipped(place, "no regular file"))
            elif portable(entry.name):
                tree.sources.append(place)
            else:
                tree.others.append(place)
        entries[:] = [entry for entry in entries if entry.name in below]
    return tree


def portable(path: str) -> bool:
    """Whether files of this name are ported."""
    return os.path.splitext(path)[1].lower() in SUFFIXES


def _folders(real: str, skipped: list[Skipped]) -> Iterator[tuple[str, str, list[os.DirEntry[str]]]]:
    """Each folder with its entries; whoever iterates leaves in the entries the folders to go on with."""
    todo = [""]
    while todo:
        relative = todo.pop()
        folder = os.path.join(real, relative) if relative else real
        try:
            with os.scandir(folder) as found:
                entries = sorted(found, key=lambda entry: entry.name)
        except OSError as error:
            if not relative:
                raise
            skipped.append(Skipped(relative, f"cannot be read: {error.strerror}"))
            continue
        yield folder, relative, entries
        todo += [os.path.join(relative, entry.name) if relative else entry.name for entry in reversed(entries)]


def own_headers(paths: Iterable[str]) -> Callable[[str], bool]:
    """Whether an include path is one of the project's own files *paths*: a file of theirs ends with it."""
    ends: set[str] = set()
    for path in paths:
        while path:
            ends.add(path)
            path = path.partition("/")[2]

    def own(path: str) -> bool:
        while path.startswith(("./", "../")):
            path = path.partition("/")[2]
        return path in ends

    return own


def decode(data: bytes) -> str | None:
    """*data* as text that `encode` gives back byte for byte; None: it is not text."""
    if b"\0" in data[:65536]:
        return None
    return data.decode("utf-8", "surrogateescape")


def encode(text: str) -> bytes:
    """The bytes of a decoded *text*."""
    return text.encode("utf-8", "surrogateescape")
