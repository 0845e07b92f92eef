"""``python -m torchada port``: port a folder of CUDA sources, or tell what porting it would do."""

from __future__ import annotations

import argparse
import difflib
import json
import os
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .builds import is_build_file
from .journal import Journal, JournalError, PortError, journal_for, journals, write
from .port import PTX_MODES, ptx_mode
from .protect import MARK, Protection
from .report import printable, report, show
from .tables import IDENTIFIER
from .tree import LINK, Skipped, Tree, decode, portable, walk
from .work import FileResult, port_files, takes_long

WHOLE = ("excluded", "a checkout of its own", "the package ", "CUTLASS ")  # folders that a copy takes as they are


def arguments(argv: Sequence[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m torchada port", description=main.__doc__)
    parser.add_argument("folder", metavar="DIR", type=Path, nargs="?", default=Path(), help="the project (default: .)")
    way = parser.add_mutually_exclusive_group()
    way.add_argument("-o", "--output", metavar="OUT", type=Path, help="write a ported copy of the project there")
    way.add_argument("--in-place", action="store_true", help="change the files themselves; --undo gives them back")
    way.add_argument("--undo", action="store_true", help="give back what --in-place or a build changed")
    way.add_argument("--diff", action="store_true", help="print what would change, as a unified diff")
    way.add_argument("--dry-run", action="store_true", help="print the report only (this is also the default)")
    way.add_argument("--check", action="store_true", help="as --dry-run; exit status 1 if anything is not ported")
    parser.add_argument("--json", action="store_true", help="print the report as JSON")
    parser.add_argument(
        "--ptx", choices=PTX_MODES, help="what becomes of inline PTX (default: TORCHADA_PORT_PTX or error)"
    )
    parser.add_argument("--rule", metavar="OLD=NEW", action="append", default=[], help="a name of your own; wins")
    parser.add_argument("--exclude", metavar="DIRS", help="folders to leave alone (default: TORCHADA_EXCLUDE_DIRS)")
    parser.add_argument("--jobs", type=int, metavar="N", help="processes (default: as many as pay)")
    options = parser.parse_args(argv)
    options.rules = {}
    for rule in options.rule:
        old, equals, new = rule.partition("=")
        if not equals or not IDENTIFIER.fullmatch(old) or not IDENTIFIER.fullmatch(new):
            parser.error(f"--rule takes OLD=NEW, two whole names, not {rule!r}")
        options.rules[old] = new
    options.ptx = options.ptx or ptx_mode()
    if options.json and options.diff:
        parser.error("--json and --diff do not go together")
    if options.exclude is None:
        options.exclude = os.environ.get("TORCHADA_EXCLUDE_DIRS")
    return options


def main(command: str, argv: list[str]) -> int:
    """Port a folder of C++ and CUDA sources to MUSA, and report what changed and what needs a person."""
    options = arguments(argv)
    try:
        if not options.folder.is_dir():
            raise PortError(f"{options.folder} is no folder")
        return _undo(options) if options.undo else _port(options)
    except (PortError, OSError) as error:
        print(f"torchada: {error}", file=sys.stderr)
        return 1


def _undo(options: argparse.Namespace) -> int:
    found = journals(options.folder)
    if not found:
        raise PortError(f"nothing to undo: there is no journal in {options.folder} or its build folder")
    restored: list[str] = []
    failed: dict[str, str] = {}
    for journal in found:
        done, left = journal.undo()
        restored += done
        failed.update(left)
    if options.json:
        print(json.dumps({"restored": restored, "failed": failed}, indent=2))
    else:
        lines = [f"restored {path}" for path in restored] + [f"left {path}: {why}" for path, why in failed.items()]
        print(printable("\n".join(lines)))
    return 1 if failed else 0


def _port(options: argparse.Namespace) -> int:
    root, output = options.folder, options.output
    if output:
        _check_output(root, output)
    if options.in_place and (why := Protection(options.exclude).root(root)):
        raise PortError(f"{root} is not ported in place: {why}")
    tree = walk(root, options.exclude, output)
    paths = tree.sources + [path for path in tree.others if is_build_file(path)]
    results = port_files(
        root,
        paths,
        headers=tree.sources + tree.others,
        rules=options.rules,
        ptx=options.ptx,
        workers=options.jobs,
    )
    done: list[FileResult] = []
    complete = True
    if options.in_place:
        journal = journal_for(root)
        with journal.locked():
            for result in _progress(results, root, paths):
                done.append(_replace(journal, result))
    else:
        for result in _progress(results, root, paths):
            if options.diff:
                _print_diff(result)
            if output and portable(result.path):
                _copy(root, output, result.path, result.new)
            done.append(result._replace(old=None, new=b"" if result.new is not None else None))
        if output:
            complete = _copy_rest(root, output, tree)
    if options.json:
        print(json.dumps(report(root, tree, done), indent=1))
    elif not options.diff:
        print(show(report(root, tree, done)))
    unported = any(result.new is not None or any(not p.note for p in result.problems) for result in done)
    failed = not complete or any(result.error for result in done)
    return 1 if failed or (options.check and unported) else 0


def _progress(results: Any, root: Path, paths: Sequence[str]) -> Any:
    """*results* with a bar on a terminal's standard error, for more than a second of work."""
    if not (sys.stderr.isatty() and takes_long(root, paths)):
        return results
    from rich.console import Console
    from rich.progress import track

    return track(results, "porting", total=len(paths), console=Console(stderr=True), transient=True)


def _replace(journal: Journal, result: FileResult) -> FileResult:
    if result.new is None or result.old is None:
        return result
    try:
        journal.replace(result.path, result.old, result.new)
    except (JournalError, OSError) as error:
        why = error.strerror if isinstance(error, OSError) else error
        return result._replace(old=None, new=None, changes=[], error=f"not written: {why}")
    return result._replace(old=None, new=b"")


def _print_diff(result: FileResult) -> None:
    if result.old is not None and result.new is not None:
        old, new = ((decode(data) or "").splitlines(keepends=True) for data in (result.old, result.new))
        text = "".join(
            line if line.endswith("\n") else line + "\n\\ No newline at end of file\n"
            for line in difflib.unified_diff(old, new, f"a/{result.path}", f"b/{result.path}")
        )
        sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape"))


def _check_output(root: Path, output: Path) -> None:
    """PortError: *output* is not a place for a copy of *root*."""
    inside = Path(os.path.realpath(root)), Path(os.path.realpath(output))
    if inside[0] == inside[1] or inside[1] in inside[0].parents:
        raise PortError(f"{output} holds the project itself: choose another folder, or use --in-place")
    if output.exists() and (not output.is_dir() or (any(output.iterdir()) and not (output / MARK).exists())):
        raise PortError(f"{output} exists and is no earlier ported copy: choose another folder")
    output.mkdir(parents=True, exist_ok=True)
    (output / MARK).write_text(json.dumps({"ported from": str(root)}) + "\n")


def _copy(root: Path, output: Path, path: str, new: bytes | None) -> str:
    """The file *path* into the copy, as *new* (None: as it is), unless it is there already; why not, if it cannot."""
    source, target = root / path, output / path
    try:
        data = source.read_bytes() if new is None else new
        mode = source.stat().st_mode & 0o7777 | 0o200
    except OSError as error:
        return f"cannot be read: {error.strerror}"
    if target.is_symlink():
        target.unlink()
    if not target.is_file() or target.read_bytes() != data:
        target.parent.mkdir(parents=True, exist_ok=True)
        write(target, data, mode, output)
    return ""


def _copy_rest(root: Path, output: Path, tree: Tree) -> bool:
    """What is not ported, as it is: other files, excluded folders, links that stay inside the project.

    False: something could not be read; *tree* has it among the skipped then.
    """
    real = os.path.realpath(root)
    whys = {path: _copy(root, output, path, None) for path in tree.others}
    failed = [Skipped(path, why) for path, why in whys.items() if why]
    for path, why in tree.skipped:
        source, target = root / path, output / path
        if why.startswith(WHOLE) and source.is_dir():
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
        elif why == LINK and not os.path.lexists(target):
            to = os.readlink(source)
            if not os.path.isabs(to) and os.path.realpath(source).startswith(real + os.sep):
                target.parent.mkdir(parents=True, exist_ok=True)
                target.symlink_to(to)
    tree.skipped.extend(failed)
    return not failed
