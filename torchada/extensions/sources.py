"""Porting the sources of an extension: those it lists and the project's headers they include, and no other file.

In place, each file keeps its name, what it was is kept in a journal in the build folder, and nothing is written unless
everything can be. A copy has the same files below one folder, at their full paths, so that includes by relative path
find each other.
"""

from __future__ import annotations

import os
import re
import shlex
import sysconfig
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import NamedTuple

from ..errors import ConfigError, TorchadaError
from ..porting.journal import JournalError, journal_for, write
from ..porting.port import PTX_MODES
from ..porting.protect import Protection, inside, is_cutlass
from ..porting.tree import portable
from ..porting.work import FileResult, port_files
from ..toolkit import toolkit_home

WAYS = ("in-place", "copy", "off")
COPY = "set TORCHADA_PORT=copy to build from a ported copy, which leaves the sources alone"
SYSTEM = ("/usr/include", "/usr/local/include", "/usr/lib/gcc")
_INCLUDE = re.compile(
    rb"""^[ \t]*#[ \t]*(?:include|include_next|import)[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)""", re.MULTILINE
)
_COMPUTED = re.compile(rb"^[ \t]*#[ \t]*include[ \t]+([A-Za-z_]\w*)[ \t]*(?:\(|\r?$|/)", re.MULTILINE)
_PATHS = re.compile(rb"""^[ \t]*#[ \t]*define[ \t]+\w+[ \t]+(?:"([^"\n]+)"|<([^>\n]+)>)[ \t]*\r?$""", re.MULTILINE)


class PortingError(TorchadaError, RuntimeError):
    """The sources of an extension cannot be ported; the text names the file, and says what to do."""


class Ported(NamedTuple):
    """What an extension is built from: its *sources*, folders to search for headers before and after its own, and
    whether it is written for torch's *stable* ABI."""

    sources: list[str]
    first: list[str]
    last: list[str]
    stable: bool = False


def way() -> str:
    """How sources are ported, as TORCHADA_PORT says. Raises ConfigError for another word."""
    word = os.environ.get("TORCHADA_PORT", "").strip().lower() or "in-place"
    word = {"inplace": "in-place", "in_place": "in-place", "0": "off", "false": "off", "no": "off"}.get(word, word)
    if word not in WAYS:
        raise ConfigError(f"TORCHADA_PORT={os.environ['TORCHADA_PORT']!r} is not known: use one of {', '.join(WAYS)}")
    return word


def ptx() -> str:
    """What inline PTX becomes, as TORCHADA_PORT_PTX says. Raises ConfigError for another word."""
    word = os.environ.get("TORCHADA_PORT_PTX", "").strip().lower() or PTX_MODES[0]
    if word not in PTX_MODES:
        choices = ", ".join(PTX_MODES)
        raise ConfigError(f"TORCHADA_PORT_PTX={os.environ['TORCHADA_PORT_PTX']!r} is not known: use one of {choices}")
    return word


def port(
    sources: Sequence[str],
    include_dirs: Sequence[str],
    root: str,
    build: str,
    *,
    how: str,
    rules: Mapping[str, str] | None = None,
    verbose: bool = True,
) -> Ported:
    """Port *sources* and the headers they include.

    root: the project's folder: in place, nothing outside it is changed. build: where a copy goes. how: one of `WAYS`.

    Raises:
        FileNotFoundError: a source is not there.
        PortingError: a source is a link, or a file cannot be read, written or ported.
        ConfigError: an environment variable has a value that is not known.
    """
    for source in sources:
        if not os.path.isfile(source):
            raise FileNotFoundError(f"the source {source} of this extension is not there (looked in {os.getcwd()})")
    if how == "off":
        return Ported(list(sources), [], [], _stable(reached(sources, include_dirs, copyable())))
    root = os.path.realpath(root)
    if how == "in-place":
        for source in sources:
            if os.path.islink(source):
                raise PortingError(
                    f"the source {source} is a link, and what it leads to is not changed in place: {COPY}"
                )
        why = _why_not_here(sources, root)
        if not why:
            files = _in_place(sources, include_dirs, root, rules, verbose)
            return Ported(list(sources), [], [], _stable(files))
        print(f"torchada: {why}: this extension is built from a ported copy of its sources")
    return _copy(sources, include_dirs, root, build, rules, verbose)


def _why_not_here(sources: Sequence[str], root: str) -> str:
    """Why *sources* are not ported in place; empty: they are."""
    for source in sources:
        if not inside(os.path.realpath(source), root):
            return f"{source} is outside {root}"
    protected = Protection().root(Path(root))
    return protected and f"{root} is not changed ({protected})"


def _toolchain() -> list[str]:
    """Where headers of Python, of the toolkits and of the system lie: neither ported nor copied."""
    paths = sysconfig.get_paths()
    places = [paths["include"], paths["platinclude"], toolkit_home(), os.environ.get("CUDA_HOME"), *SYSTEM]
    return [os.path.realpath(place) for place in places if place]


def in_project(root: str) -> Callable[[str], bool]:
    """Whether a header may be ported in place: below *root*, not installed, excluded or in a nested checkout."""
    guard, toolchain = Protection(os.environ.get("TORCHADA_EXCLUDE_DIRS")), _toolchain()

    def own(path: str) -> bool:
        folder = os.path.dirname(os.path.realpath(path))
        if not inside(folder, root) or guard.whole(folder) or any(inside(folder, place) for place in toolchain):
            return False
        while folder != root:
            if guard.folder(folder):
                return False
            folder = os.path.dirname(folder)
        return True

    return own


def copyable(root: str = "") -> Callable[[str], bool]:
    """Whether a header goes into a ported copy: all but the toolchain's, those of torch and of CUTLASS, whose place
    MUTLASS takes (if the project *root* is not CUTLASS itself), and excluded ones."""
    guard = Protection(os.environ.get("TORCHADA_EXCLUDE_DIRS"))
    places = [*_toolchain(), *guard.roots]

    @cache
    def copied(folder: str) -> bool:
        if guard.whole(folder) or any(inside(folder, place) for place in places):
            return False
        if folder != root and is_cutlass(folder):
            return False
        above = os.path.dirname(folder)
        return above == folder or copied(above)

    return lambda path: copied(os.path.dirname(os.path.realpath(path)))


def reached(sources: Sequence[str], include_dirs: Sequence[str], own: Callable[[str], bool]) -> list[str]:
    """*sources* and the headers reached from them by includes, for which *own* holds; absolute, each once.

    All branches of conditions are followed. Of an include by macro, every path that the files define is tried.
    """
    folders = [os.path.abspath(folder) for folder in include_dirs if own(os.path.join(folder, "x"))]
    found = dict.fromkeys(os.path.abspath(source) for source in sources)
    todo = list(found)
    defined: dict[str, None] = {}
    computed: list[str] = []
    while todo:
        file = todo.pop()
        try:
            data = Path(file).read_bytes()
        except OSError as error:
            raise PortingError(f"{file} cannot be read: {error.strerror}") from error
        here = os.path.dirname(file)
        asked = [(here, *groups) for groups in _INCLUDE.findall(data)]
        if _COMPUTED.search(data):
            computed.append(here)
        for quoted, angled in _PATHS.findall(data):
            defined[os.fsdecode(quoted or angled)] = None
        for at, quoted, angled in asked:
            _add(os.fsdecode(quoted or angled), [at, *folders] if quoted else folders, own, found, todo)
        if not todo and computed:
            for path in defined:
                _add(path, [*computed, *folders], own, found, todo)
            computed, defined = [], {}
    return list(found)


def _add(
    path: str, folders: Iterable[str], own: Callable[[str], bool], found: dict[str, None], todo: list[str]
) -> None:
    for folder in folders:
        file = os.path.normpath(os.path.join(folder, path))
        if os.path.isfile(file):
            if file not in found and own(file):
                found[file] = None
                todo.append(file)
            return


def _results(
    root: str, files: Sequence[str], rules: Mapping[str, str] | None, listed: Sequence[str], verbose: bool
) -> list[FileResult]:
    """What porting *files* gives; told on standard output. PortingError: one cannot be ported."""
    names = [os.path.relpath(file, root) for file in files]
    asked = {os.path.relpath(os.path.abspath(file), root) for file in listed}
    wanted = [name for name in names if portable(name)]
    # In this process: a setup.py need not have the guard that starting others asks for.
    results = list(port_files(Path(root), wanted, headers=names, rules=rules, ptx=ptx(), workers=1))
    for result in results:
        if result.error and result.path in asked:
            raise PortingError(f"{os.path.join(root, result.path)}: {result.error}")
        for problem in result.problems if verbose else ():
            if not problem.note:
                print(f"torchada: {result.path}:{problem.line}: {problem.name}: {problem.why}")
    return results


def _in_place(
    sources: Sequence[str], include_dirs: Sequence[str], root: str, rules: Mapping[str, str] | None, verbose: bool
) -> list[str]:
    files = reached(sources, include_dirs, in_project(root))
    listed = {os.path.realpath(source) for source in sources}
    changed = []
    for result in _results(root, [os.path.realpath(file) for file in files], rules, sources, verbose):
        if result.new is None or result.old is None:
            continue
        file = os.path.join(root, result.path)
        if file not in listed and file not in files:
            linked = next(name for name in files if os.path.realpath(name) == file)
            raise PortingError(f"the header {linked} is reached through a link, and not changed in place: {COPY}")
        if not os.stat(file).st_mode & 0o222:
            raise PortingError(f"{file} is read-only: make it writable, or {COPY}")
        changed.append((result.path, result.old, result.new))
    if not changed:
        return files
    journal = journal_for(Path(root), building=True)
    try:
        with journal.locked(wait=True):  # builds run side by side
            for path, old, new in changed:
                if Path(root, path).read_bytes() != new:  # another build was faster
                    journal.replace(path, old, new)
    except (JournalError, OSError) as error:
        raise PortingError(
            f"porting in place stopped: {error}. Each file is either as it was or ported; "
            f"python -m torchada port {shlex.quote(root)} --undo gives the old ones back. Or {COPY}"
        ) from error
    print(
        f"torchada: ported {len(changed)} of {len(files)} files in place; "
        f"python -m torchada port {shlex.quote(root)} --undo gives them back"
    )
    return files


def _copy(
    sources: Sequence[str],
    include_dirs: Sequence[str],
    root: str,
    build: str,
    rules: Mapping[str, str] | None,
    verbose: bool,
) -> Ported:
    target = os.path.abspath(os.path.join(build, "torchada-ported"))  # ninja compiles in another folder
    own = copyable(root)
    files = reached(sources, include_dirs, own)
    results = {os.path.join("/", r.path): r for r in _results("/", files, rules, sources, verbose)}
    for file in files:
        result = results.get(file)
        data = result.new if result is not None and result.new is not None else Path(file).read_bytes()
        _put(Path(target + file), data, os.stat(file).st_mode & 0o777 | 0o200)
    folders = [os.path.abspath(folder) for folder in include_dirs]
    first = [target + folder for folder in folders if os.path.isdir(target + folder)]
    copies = [target + os.path.abspath(source) for source in sources]
    return Ported(copies, first, _folders(sources), _stable(files))


def _stable(files: Sequence[str]) -> bool:
    return any(b"torch/csrc/stable/" in Path(file).read_bytes() for file in files)


def _folders(sources: Sequence[str]) -> list[str]:
    """Where the sources lie: searched last, for what the copy does not have (a header named by a macro)."""
    return list(dict.fromkeys(os.path.dirname(os.path.abspath(source)) for source in sources))


def _put(path: Path, data: bytes, mode: int) -> None:
    """Write a file unless it holds this already: its time is what tells a build what to do anew."""
    if path.is_file() and path.read_bytes() == data:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    write(path, data, mode, path.parent)
