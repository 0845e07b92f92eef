"""Writing ported files so that a crash at any moment leaves each file old or new, and all of it can be undone.

The journal is a folder: ``originals/`` holds what files were, named by their SHA-256, ``journal`` one line of JSON for
each change, written before the change is made.
"""

from __future__ import annotations

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from ..errors import TorchadaError
from ..simulator.toolchain import lock_file

FOLDER = ".torchada-port"
BUILD = "build"
TEMPORARY = ".torchada-new-"


class PortError(TorchadaError, RuntimeError):
    """Porting cannot be done as asked; the text says why and what to do. Nothing was changed, if it does not say so."""


class JournalError(PortError):
    """The journal cannot be used; the text says why and what to do."""


def digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def write(path: Path, data: bytes, mode: int | None, scratch: Path) -> None:
    """Make *path* hold *data* at once (never a part of it), through a file in *scratch*, or beside *path* if *scratch*
    is on another file system.

    mode: permission bits; None: those of *path*. OSError: nothing was changed.
    """
    for folder in (scratch, path.parent):
        temporary = folder / f"{TEMPORARY}{os.getpid()}"
        try:
            with open(temporary, "wb") as file:
                file.write(data)
                os.fchmod(file.fileno(), os.stat(path).st_mode & 0o7777 if mode is None else mode)
                file.flush()
                os.fsync(file.fileno())
            os.replace(temporary, path)
            return
        except OSError as error:
            if error.errno != errno.EXDEV or folder == path.parent:
                raise
        finally:
            temporary.unlink(missing_ok=True)


class Journal:
    """The journal of the tree *root* in *folder* (default: a hidden folder in *root*)."""

    def __init__(self, root: Path, folder: Path | None = None) -> None:
        self.root = Path(os.path.realpath(root))
        self.folder = folder or self.root / FOLDER
        self.file = self.folder / "journal"

    @contextmanager
    def locked(self, wait: bool = False) -> Iterator[None]:
        """Nobody else ports or undoes here meanwhile. JournalError: somebody does, and we do not *wait*."""
        with self._lock(wait):
            for left in self.folder.glob(f"{TEMPORARY}*"):  # of a process that was killed
                left.unlink()
            for line in self.lines()[-1:]:
                for left in (self.root / line["path"]).parent.glob(f"{TEMPORARY}*"):
                    left.unlink()
            try:
                yield
            finally:
                if self.folder.exists() and not self.file.exists():  # nothing to undo
                    shutil.rmtree(self.folder)

    @contextmanager
    def _lock(self, wait: bool) -> Iterator[None]:
        while True:
            self.folder.mkdir(parents=True, exist_ok=True)
            with ExitStack() as opened:
                try:
                    (self.folder / "originals").mkdir(exist_ok=True)
                    (self.folder / ".gitignore").write_text("*\n")
                    lock = opened.enter_context(lock_file(self.folder / "lock"))
                except FileNotFoundError:  # the folder just went away
                    continue
                try:
                    fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
                except BlockingIOError as error:
                    raise JournalError(f"another process is porting {self.root}: wait for its end") from error
                if os.fstat(lock.fileno()).st_nlink:  # else that process has ended, and its folder is gone
                    yield
                    return

    def lines(self) -> list[dict[str, str]]:
        """The changes made, oldest first. A last line torn by a crash does not count: its change was never made."""
        try:
            lines = self.file.read_text().split("\n")
        except FileNotFoundError:
            return []
        try:
            return [json.loads(line) for line in lines[:-1]]
        except ValueError as error:
            raise JournalError(f"{self.file} is damaged: {error}") from error

    def replace(self, path: str, old: bytes, new: bytes) -> None:
        """Make the file *path* hold *new*, keeping *old*. JournalError: it is not as it was read, or is read-only."""
        target = self.root / path
        if target.is_symlink() or target.read_bytes() != old:
            raise JournalError("it changed meanwhile")
        if not target.stat().st_mode & 0o222:
            raise JournalError("it is read-only")
        original = self.folder / "originals" / digest(old)
        if not original.exists():
            write(original, old, 0o600, self.folder)
        line = json.dumps({"path": path, "old": digest(old), "new": digest(new)})
        with open(self.file, "a+b") as journal:
            size = journal.seek(0, os.SEEK_END)
            if size and os.pread(journal.fileno(), 1, size - 1) != b"\n":  # a line torn by a crash
                os.ftruncate(journal.fileno(), os.pread(journal.fileno(), size, 0).rfind(b"\n") + 1)
            journal.write(line.encode() + b"\n")
            journal.flush()
            os.fsync(journal.fileno())
        write(target, new, None, self.folder)

    def undo(self) -> tuple[list[str], dict[str, str]]:
        """Give every file back what it was: the paths restored, and those that were not, with why.

        The journal goes away when nothing is left to undo. JournalError: there is no journal, or it is damaged.
        """
        if not self.file.exists():
            raise JournalError(f"nothing to undo: there is no journal in {self.folder}")
        restored: dict[str, None] = {}
        failed: dict[str, str] = {}
        with self.locked():
            for line in reversed(self.lines()):
                path = line["path"]
                target = self.root / path
                try:
                    if target.is_symlink():
                        raise OSError(0, "it is a link now")
                    now = digest(target.read_bytes())
                    if now == line["new"]:
                        data = (self.folder / "originals" / line["old"]).read_bytes()
                        if digest(data) != line["old"]:
                            raise OSError(0, "the kept original is damaged")
                        write(target, data, None, self.folder)
                        restored[path] = None
                        failed.pop(path, None)
                    elif now != line["old"]:
                        failed[path] = "it was edited after it was ported"
                except OSError as error:
                    failed[path] = error.strerror or str(error)
            if not failed:
                self.file.unlink()  # first, so that a crash here leaves no journal without originals
        return list(restored), failed


def journal_for(root: Path, building: bool = False) -> Journal:
    """The journal that holds changes of *root*: its own, or the one in its build folder. Where neither is there: a new
    one, in the build folder if the change is part of *building*."""
    own, built = Journal(root), Journal(root, Path(os.path.realpath(root), BUILD, FOLDER))
    if own.file.exists() or built.file.exists():
        return own if own.file.exists() else built
    return built if building else own


def journals(root: Path) -> list[Journal]:
    """All journals that hold changes of *root*."""
    found = (Journal(root), Journal(root, Path(os.path.realpath(root), BUILD, FOLDER)))
    return [journal for journal in found if journal.file.exists()]
