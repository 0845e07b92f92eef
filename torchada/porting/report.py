"""The report of a port, as data and as text."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .tree import Tree, portable
from .work import FileResult


def report(root: Path, tree: Tree, done: Sequence[FileResult]) -> dict[str, Any]:
    """The report as plain data: the ``files`` with anything to say, the ``skipped`` paths, ``totals``."""
    files = [
        {
            "path": result.path,
            "changed": result.new is not None,
            "changes": [change._asdict() for change in result.changes],
            "problems": [problem._asdict() for problem in result.problems],
            **({"error": result.error} if result.error else {}),
        }
        for result in done
        if result.new is not None or result.problems or result.error
    ]
    problems = [problem for result in done for problem in result.problems]
    totals = {
        "files": sum(portable(result.path) for result in done),
        "changed": sum(result.new is not None for result in done),
        "changes": sum(len(result.changes) for result in done),
        "problems": sum(not problem.note for problem in problems),
        "notes": sum(problem.note for problem in problems),
        "errors": sum(bool(result.error) for result in done),
    }
    return {"root": str(root), "totals": totals, "files": files, "skipped": [s._asdict() for s in tree.skipped]}


def show(data: dict[str, Any]) -> str:
    """The report as text: a line per file, its problems with file and line, then the totals."""
    lines = []
    for file in data["files"]:
        path = file["path"]
        lines.append(f"{path}: {file['error'] if 'error' in file else str(len(file['changes'])) + ' changes'}")
        for p in file["problems"]:
            lines.append(f"  {path}:{p['line']}: {'note: ' if p['note'] else ''}{p['name']}: {p['why']}")
    lines += [f"skipped {s['path']}: {s['why']}" for s in data["skipped"]]
    t = data["totals"]
    lines.append(
        f"{t['files']} sources, {t['changed']} changed ({t['changes']} changes), "
        f"{t['problems']} places need a person, {t['notes']} notes, {t['errors']} errors"
    )
    return printable("\n".join(lines))


def printable(text: str) -> str:
    """*text* with a sign in place of what no encoding explains (in names of files, in sources)."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")
