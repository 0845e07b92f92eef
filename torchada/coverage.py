"""Every public name of torch.cuda and its neighbours, and what torchada decided about it: ``python -m torchada docs``.

The page is made from the table and from ``data/public_names.json`` (the names of released torch versions). Making it
needs torch and torch_musa (the simulated one will do), because a name without a row is answered by torch_musa.
"""

from __future__ import annotations

import argparse
import importlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from packaging.version import Version

from .rules import Compute, Detour, Forward, Install, Native, Noop, Refuse, Rehost, Rule, Stub, Table, Wrap
from .tables.defaults import GENERIC

NAMES = Path(__file__).parent / "data" / "public_names.json"
UNDECIDED = "undecided"
PRIVATE = ("torch.cuda", "torch._C")
VERBS = {
    "redirected": "torch_musa's object answers",
    "adapted": "torch_musa's object, or torch's own, with what differs put right",
    "emulated": "written in Python on MUSA primitives",
    "rehosted": "torch's own Python code, run on MUSA primitives",
    "native": "torch's own object, which is right as it is",
    "no-op": "accepted, and does nothing",
    "refused": "there, and raises torchada.NotOnMusa with reason and alternative when it is used",
}


@dataclass(frozen=True)
class Decision:
    """What happens to one public name; *gate* says when, *versions* which torch has it."""

    module: str
    name: str
    verb: str
    why: str
    gate: str
    test: str
    versions: str


def released() -> dict[str, dict[str, list[str]]]:
    """Version -> module -> public names."""
    known = json.loads(NAMES.read_text())
    return {
        version: {module: names.split() for module, names in known[version].items()}
        for version in sorted(known, key=Version)
    }


def decisions(table: Table) -> list[Decision]:
    """A decision (or more, where gates differ) for every public name of every released torch in the data."""
    known = released()
    where: dict[tuple[str, str], list[str]] = {}
    for version, modules in known.items():
        for module, names in modules.items():
            for name in names:
                where.setdefault((module, name), []).append(version)
    found = []
    for (module, name), versions in sorted(where.items()):
        told = _versions(versions, list(known))
        for verb, why, gate, test in _decide(table, module, name):
            found.append(Decision(module, name, verb, why, gate, test, told))
    for rule in table.rules:  # private names that torch itself and real projects use
        name = rule.name.partition(".")[0]
        if rule.module.startswith(PRIVATE) and (rule.module, name) not in where:
            found.append(
                Decision(rule.module, rule.name, _verb(table, rule), rule.why, rule.when, rule.test, "private")
            )
    return sorted(found, key=lambda decision: decision.module)


def _versions(have: list[str], every: list[str]) -> str:
    if have == every:
        return "all"
    if have == every[every.index(have[0]) :]:
        return f"since {have[0]}"
    if have == every[: every.index(have[-1]) + 1]:
        return f"until {have[-1]}"
    return ", ".join(have)


def _decide(table: Table, module: str, name: str) -> Iterator[tuple[str, str, str, str]]:
    full = f"{module}.{name}"
    rows = list(table.lazy.get(module, {}).get(name, ()))
    rows += [rule for rule in table.patches.get(module, ()) if rule.name.partition(".")[0] == name]
    if rows:
        for rule in rows:
            yield _verb(table, rule), rule.why, rule.when, rule.test
    elif full in table.mirrors:
        yield "adapted", f"a module: {table.mirrors[full].why}", "", ""
    elif module in table.mirrors and _peer_has(table, module, name):
        yield "redirected", "the same name, parameters and meaning in torch_musa", "", "tests/snippets"
    elif module in GENERIC:
        why, test = GENERIC[module]
        yield "native", why, "", test
    else:
        yield UNDECIDED, "", "", ""


def _peer_has(table: Table, module: str, name: str) -> bool:
    peer = table.mirrors[module].peer
    return peer is not None and hasattr(importlib.import_module(peer), name)


def _verb(table: Table, rule: Rule) -> str:
    action = rule.do
    if isinstance(action, Wrap) and not isinstance(action, Noop):
        return "adapted" if table.is_lazy(rule) and _peer_has(table, rule.module, rule.name) else "emulated"
    kinds = {
        Native: "native", Forward: "redirected", Noop: "no-op", Stub: "emulated", Compute: "emulated",
        Rehost: "rehosted", Refuse: "refused", Detour: "adapted", Install: "adapted",
    }  # fmt: skip
    return kinds[type(action)]


def page(table: Table) -> str:
    """docs/coverage.md"""
    found = decisions(table)
    counts = Counter(decision.verb for decision in found)
    lines = [
        "# Coverage",
        "",
        f"Every public name of `torch.cuda`, its submodules and neighbours in torch {', '.join(released())}, private",
        "ones that have a row, and what torchada does about each. Made by `python -m torchada docs`; do not edit.",
        "",
        "| decision | names | meaning |",
        "|---|---|---|",
        *(f"| {verb} | {counts[verb]} | {meaning} |" for verb, meaning in VERBS.items()),
        f"| {UNDECIDED} | {counts[UNDECIDED]} | |",
        "",
        "A name counts once per module that has it, and once more where a gate chooses between two decisions.",
    ]
    module = ""
    for decision in found:
        if decision.module != module:
            module = decision.module
            lines += ["", f"## {module}", "", "| name | decision | reason | torch | test |", "|---|---|---|---|---|"]
        gate = f" (when `{decision.gate}`)" if decision.gate else ""
        test = decision.test.partition("::")[2] or decision.test
        lines.append(f"| `{decision.name}` | {decision.verb} | {decision.why}{gate} | {decision.versions} | {test} |")
    return "\n".join(lines) + "\n"


def main(command: str, argv: list[str]) -> int:
    """``python -m torchada docs``: print the page, write it to a file, or check that a file is fresh."""
    parser = argparse.ArgumentParser(prog=f"python -m torchada {command}", description=main.__doc__)
    parser.add_argument("--output", type=Path, help="write the page to this file")
    parser.add_argument("--check", type=Path, help="exit status 1 unless this file is what would be written")
    options = parser.parse_args(argv)
    from .engine import ENGINE
    from .report import load

    trouble = load()
    if trouble or ENGINE.facts is None:
        print(f"torchada: the page is made on a MUSA machine or with TORCHADA_SIMULATE=1 ({trouble})", file=sys.stderr)
        return 1
    text = page(ENGINE.table)
    if options.check:
        fresh = options.check.is_file() and options.check.read_text() == text
        print(f"{options.check} is " + ("fresh" if fresh else f"stale: torchada docs --output {options.check}"))
        return int(not fresh)
    if options.output:
        options.output.write_text(text)
    else:
        print(text, end="")
    return 0
