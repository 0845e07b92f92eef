"""Which files of a project are ported, and how they are read."""

from __future__ import annotations

import os
import stat
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

CODE = (".cu", ".cc", ".cpp", ".cxx", ".c", ".ixx", ".cppm")
HEADERS = (".cuh", ".h", ".hpp", ".hh", ".hxx", ".inl", ".inc", ".ipp", ".tpp", ".txx", ".tcc")
SUFFIXES = frozenset(CODE + HEADERS)  # compared in lower case; .mu and .muh are MUSA already
SKIPPED = frozenset(
    (".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", "dist-packages", ".torchada-port")
)
SYSTEM = ("/usr", "/opt", "/lib", "/bin", "/etc", "/proc", "/sys", "/dev")
MARKS = (".git", ".hg", ".svn")  # what the root of a checkout holds


class Skipped(NamedTuple):
    """A *path* (relative to the root) that is not ported, and *why*."""

    path: str
    why: str


class Tree(NamedTuple):
    """The files of a project: *sources* to port, *others* to copy (both relative to the root), *skipped* ones."""

    sources: list[str]
    others: list[str]
    skipped: list[Skipped]


def exclusions(text: str | None) -> tuple[list[str], set[str]]:
    """*text* as TORCHADA_EXCLUDE_DIRS spells it: real paths of folders, and bare names of folders."""
    paths: list[str] = []
    names: set[str] = set()
    for item in (text or "").replace(os.pathsep, ",").split(","):
        item = os.path.expandvars(os.path.expanduser(item.strip()))
        if os.sep in item:
            paths.append(os.path.realpath(item))
        elif item:
            names.add(item)
    return paths, names


def walk(root: Path, exclude: str | None = None, output: Path | None = None) -> Tree:
    """The files under *root*. Links are never followed; nested checkouts, version control, installed packages and what
    *exclude* (as TORCHADA_EXCLUDE_DIRS spells it) names stay as they are; *output* is stepped over.

    NotADirectoryError: *root* is no folder. PermissionError: *root* cannot be read.
    """
    paths, names = exclusions(exclude)
    real = os.path.realpath(root)
    if any(real == path or real.startswith(path + os.sep) for path in paths):
        return Tree([], [], [Skipped(".", "excluded")])
    tree = Tree([], [], [])
    apart = os.path.realpath(output) if output else None
    for folder, relative, entries in _folders(real, tree.skipped):
        below: list[str] = []
        for entry in entries:
            place = os.path.join(relative, entry.name) if relative else entry.name
            try:
                mode = entry.stat(follow_symlinks=False).st_mode
            except OSError as error:
                tree.skipped.append(Skipped(place, f"cannot be read: {error.strerror}"))
                continue
            if stat.S_ISLNK(mode):
                tree.skipped.append(Skipped(place, "a link"))
            elif stat.S_ISDIR(mode):
                why = _why_not(entry, folder, names, paths)
                if entry.path == apart:
                    continue
                if why:
                    tree.skipped.append(Skipped(place, why))
                else:
                    below.append(entry.name)
            elif not stat.S_ISREG(mode):
                tree.skipped.append(Skipped(place, "no regular file"))
            elif os.path.splitext(entry.name)[1].lower() in SUFFIXES:
                tree.sources.append(place)
            else:
                tree.others.append(place)
        entries[:] = [entry for entry in entries if entry.name in below]
    return tree


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


def _why_not(entry: os.DirEntry[str], folder: str, names: set[str], paths: Iterable[str]) -> str:
    """Why the folder *entry* is not ported; empty: it is."""
    if entry.name in SKIPPED:
        return "version control or installed packages"
    if entry.name in names or entry.path in paths:
        return "excluded"
    if any(os.path.lexists(os.path.join(entry.path, mark)) for mark in MARKS):
        return "a checkout of its own"
    if os.path.exists(os.path.join(entry.path, "pyvenv.cfg")):
        return "a virtual environment"
    return ""


def protected(root: Path) -> str:
    """Why *root* must not be ported in place; empty: it may be."""
    real = os.path.realpath(root)
    if real == "/" or any(real == place or real.startswith(place + os.sep) for place in SYSTEM):
        return "it belongs to the system"
    if SKIPPED.intersection(Path(real).parts):
        return "it is inside version control or installed packages"
    return ""


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
