"""Porting the files of a tree, in parallel where that pays."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path
from typing import NamedTuple

from .builds import notes
from .changes import Change, Problem
from .port import Porter
from .tree import decode, encode, own_headers, portable

PARALLEL = 10_000_000  # bytes: about a second of work on a common core


class FileResult(NamedTuple):
    """What porting the file *path* gave: *old* and *new* bytes (both None if nothing changed), its *changes* and
    *problems*, and an *error* that left it alone (empty: none)."""

    path: str
    old: bytes | None
    new: bytes | None
    changes: list[Change]
    problems: list[Problem]
    error: str = ""


_porter: Porter
_own = own_headers(())
_root = ""


def _begin(root: str, paths: Sequence[str], rules: Mapping[str, str], ptx: str) -> None:
    global _porter, _own, _root
    _porter, _own, _root = Porter(rules, ptx), own_headers(paths), root


def _port(path: str) -> FileResult:
    try:
        old = Path(_root, path).read_bytes()
    except OSError as error:
        return FileResult(path, None, None, [], [], f"cannot be read: {error.strerror}")
    text = decode(old)
    if text is None:
        return FileResult(path, None, None, [], [], "not a text: it holds zero bytes")
    if not portable(path):
        return FileResult(path, None, None, [], notes(text))
    result = _porter.port(text, path, _own)
    if result.text == text:
        return FileResult(path, None, None, [], result.problems)
    return FileResult(path, old, encode(result.text), result.changes, result.problems)


def takes_long(root: Path, paths: Sequence[str]) -> bool:
    """Whether porting the files *paths* under *root* is about a second of work or more."""
    return sum(os.path.getsize(root / path) for path in paths if os.path.exists(root / path)) > PARALLEL


def port_files(
    root: Path,
    paths: Sequence[str],
    *,
    headers: Sequence[str] | None = None,
    rules: Mapping[str, str] | None = None,
    ptx: str = "error",
    workers: int | None = None,
) -> Iterator[FileResult]:
    """Port the files *paths* under *root*, in order; nothing is written. Those that are no sources are looked at only
    for what they say of architectures.

    headers: paths of the project's own files, whose includes stay (default: *paths*). workers: processes (default: as
    many as there are cores when there is a second of work, else this one). ValueError: as `Porter`.
    """
    start = (str(root), headers if headers is not None else paths, rules or {}, ptx)
    _begin(*start)  # here also: bad rules must raise before any process starts
    if workers is None:
        workers = len(os.sched_getaffinity(0)) if len(paths) > 1 and takes_long(root, paths) else 1
    if workers < 2:
        yield from map(_port, paths)
        return
    with ProcessPoolExecutor(workers, get_context("spawn"), _begin, start) as pool:
        yield from pool.map(_port, paths, chunksize=max(1, min(16, len(paths) // workers // 4)))
