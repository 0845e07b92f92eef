"""What torchada does here and why: ``python -m torchada report`` and ``doctor``, as text or JSON.

``rows()`` is a pure function of table, facts and ledger; everything else presents it.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections import Counter
from dataclasses import asdict, dataclass
from typing import Any

from . import __version__, api, startup
from .enable import PRIVATE, starts_with
from .engine import ENGINE, OFF
from .errors import ConfigError
from .facts import VARIABLES, versions
from .gates import Facts
from .inherit import disinherit
from .ledger import ABSENT, ACTIVE, FAILED, GATED, PENDING, SHADOWED, UNDONE, Ledger
from .platform import Platform, detect_platform, simulated, torch_cuda_version
from .rules import Table
from .scope import describe
from .simulator.toolchain import SimulatorBuildError

OK, NOTE, BAD = "ok", "note", "bad"
OUTCOMES = (ACTIVE, PENDING, GATED, ABSENT, FAILED, SHADOWED, UNDONE, "off")
KNOWN = "correct the name; the variables are: " + ", ".join(VARIABLES)
WIDE = 160  # columns where the output goes to a file or a pipe


@dataclass(frozen=True)
class Row:
    """One rule as the report shows it."""

    rule: str
    action: str
    outcome: str
    gate: str
    why: str
    until: str
    test: str
    detail: str


@dataclass(frozen=True)
class Check:
    """One finding of the doctor; *fix* says what to do when it is not ok."""

    name: str
    level: str
    text: str
    fix: str = ""


def rows(table: Table, facts: Facts | None, ledger: Ledger) -> list[Row]:
    """Every rule with its outcome. Without facts (not armed) gates have no answer: the outcome is ``off``."""
    states = ledger.states()
    found = []
    for rule in table.rules:
        entry = states.get(rule.id)
        outcome = entry.outcome if entry else "off" if facts is None else PENDING
        detail = entry.detail if entry else ""
        action = type(rule.do).__name__
        found.append(Row(rule.at, action, outcome, rule.when, rule.why, rule.until, rule.test, detail))
    return found


def counts(found: list[Row]) -> dict[str, int]:
    return dict(Counter(row.outcome for row in found))


def load() -> str | None:
    """Bring this process into the state a program would see; the error text when torch cannot be imported for it."""
    api.activate()
    try:
        import torch  # noqa: F401
    except (ImportError, SimulatorBuildError) as error:
        return str(error)
    return None


def summary_line() -> str:
    """The one line ``--summary`` prints at exit."""
    if ENGINE.facts is None or ENGINE.state == OFF:
        status = api.status()
        return f"torchada {__version__}: not at work here ({status['error'] or 'platform ' + status['platform']})"
    import torch

    states = Counter(entry.outcome for entry in ENGINE.ledger.states().values())
    musa = sys.modules["torch_musa"]
    initialised = musa.is_initialized() and musa.device_count() > 0
    device = musa.get_device_name(0) if initialised else "no device used"
    failed = f", {states[FAILED]} failed" if states[FAILED] else ""
    return (
        f"torchada {__version__}: CUDA code on {device}, torch {torch.__version__}, torch_musa {musa.__version__}; "
        f"{states[ACTIVE]} rules active{failed}"
    )


def diagnose() -> list[Check]:
    """Look at this machine and environment as a program would find them."""
    checks = [Check("torchada", OK, f"{__version__} in {os.path.dirname(os.path.abspath(__file__))}")]
    try:
        platform = detect_platform()
        trouble = load()
    except (ConfigError, ValueError) as error:
        return [*checks, Check("settings", BAD, str(error), "correct or unset the variable")]
    found = versions()
    checks.append(Check("python", OK, f"{found['python']} at {sys.executable}"))
    if trouble is not None or found["torch"] is None:
        hint = "mend what the text names" if found["torch"] else "install torch (torchada never does)"
        checks.append(Check("torch", BAD, trouble or "not installed", hint))
    else:
        build = f"CUDA {torch_cuda_version()} build" if torch_cuda_version() else "no CUDA in this build"
        checks.append(Check("torch", OK, f"{found['torch']} ({build})"))
    checks.append(_platform_check(platform, found))
    checks += _activity_checks(platform)
    checks += _surroundings()
    return checks


def _platform_check(platform: Platform, found: dict[str, str | None]) -> Check:
    forced = " (forced by TORCHADA_PLATFORM)" if os.environ.get("TORCHADA_PLATFORM") else ""
    if platform is Platform.MUSA:
        kind = "simulated" if simulated() else "installed"
        return Check("platform", OK, f"musa{forced}: torch_musa {found['torch_musa'] or 'of unknown version'}, {kind}")
    reason = "torch is a CUDA build" if platform is Platform.CUDA else "torch_musa is not installed"
    text = f"{platform.value}{forced}: {reason}; torchada is inert"
    return Check("platform", NOTE, text, "try without hardware: python -m torchada --simulate script.py")


def _activity_checks(platform: Platform) -> list[Check]:
    if startup.switched_off():
        return [Check("active", NOTE, "switched off by TORCHADA=0", "unset TORCHADA")]
    if platform is not Platform.MUSA:
        return []
    failures = ENGINE.ledger.failures()
    if ENGINE.facts is None or ENGINE.state == OFF:
        text = "; ".join(entry.detail for entry in failures) or "torch could not be imported"
        return [Check("active", BAD, f"no: {text}", "mend what is named; then run doctor again")]
    if startup.state["via"] == "import":
        disinherit()  # what this command itself passes on to children is not the user's doing
    via = starts_with()
    text = (
        f"via {via}" if via else "in this command only: programs start it by `import torchada` or `python -m torchada`"
    )
    checks = [Check("active", OK, text)]
    found = rows(ENGINE.table, ENGINE.facts, ENGINE.ledger)
    told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts(found).items()))
    checks.append(Check("rules", BAD if failures else OK, told, "see: python -m torchada report" if failures else ""))
    checks += [Check(f"rule {entry.rule}", BAD, entry.detail, "please report this") for entry in failures]
    checks += [Check("masquerade", OK if found.fits else NOTE, found.text, found.fix) for found in describe()]
    return [*checks, _device_check()]


def _device_check() -> Check:
    musa = sys.modules["torch_musa"]
    try:
        names = Counter(musa.get_device_name(index) for index in range(musa.device_count()))
    except Exception as error:  # whatever is broken there, the doctor tells it
        told = f"torch_musa does not work: {type(error).__name__}: {error}"
        return Check("devices", BAD, told, "check the driver and the device files")
    if not names:
        return Check("devices", NOTE, "none (a build container, or MUSA_VISIBLE_DEVICES hides them)")
    return Check("devices", OK, ", ".join(f"{count} x {name}" for name, count in names.items()))


def _surroundings() -> list[Check]:
    others = [_name(finder) for finder in sys.meta_path if finder is not ENGINE.finder]
    checks = [Check("sys.meta_path", OK, ", ".join(others))]
    ours = sorted(name for name in os.environ if name.startswith(("TORCHADA", "MUSA_VISIBLE", "CUDA_VISIBLE")))
    ours = [name for name in ours if name not in PRIVATE]
    checks.append(Check("environment", OK, ", ".join(f"{name}={os.environ[name]}" for name in ours) or "nothing set"))
    unknown = [name for name in ours if name.startswith("TORCHADA") and name not in VARIABLES]
    if unknown:
        checks.append(Check("environment", NOTE, f"torchada does not know {', '.join(unknown)}", KNOWN))
    if simulated() and not shutil.which(os.environ.get("CXX", "c++")):
        fix = "install a C++ compiler (Debian: apt-get install g++)"
        checks.append(Check("compiler", BAD, "none found; the simulated device is built with it", fix))
    return checks


def _name(finder: Any) -> str:
    kind = finder if isinstance(finder, type) else type(finder)
    return f"{kind.__module__}.{kind.__qualname__}"


def main(command: str, argv: list[str]) -> int:
    """``report`` or ``doctor``. The exit status is 1 when the doctor found something bad or a rule failed."""
    parser = argparse.ArgumentParser(prog=f"python -m torchada {command}")
    parser.add_argument("--json", action="store_true", help="machine-readable output")
    if command == "report":
        parser.add_argument("--outcome", choices=OUTCOMES, help="show only rules with this outcome")
    options = parser.parse_args(argv)
    return _doctor(options) if command == "doctor" else _report(options)


def _doctor(options: argparse.Namespace) -> int:
    checks = diagnose()
    bad = any(check.level == BAD for check in checks)
    if options.json:
        print(json.dumps({"ok": not bad, "checks": [asdict(check) for check in checks]}, indent=2))
        return int(bad)
    from rich.console import Console
    from rich.table import Table as Grid
    from rich.text import Text

    grid = Grid(box=None, show_header=False, pad_edge=False)
    styles = {OK: "green", NOTE: "yellow", BAD: "red"}
    for check in checks:
        told = check.text + (f"\n-> {check.fix}" if check.fix else "")
        grid.add_row(Text(check.level, styles[check.level]), Text(check.name), Text(told))
    Console(width=None if sys.stdout.isatty() else WIDE).print(grid)
    return int(bad)


def _report(options: argparse.Namespace) -> int:
    trouble = load()
    found = rows(ENGINE.table, ENGINE.facts, ENGINE.ledger)
    shown = [row for row in found if options.outcome in (None, row.outcome)]
    status = api.status() | {"torch_error": trouble}
    if options.json:
        status["error"] = str(status["error"]) if status["error"] else None
        print(json.dumps({"status": status, "rules": [asdict(row) for row in shown]}, indent=2))
    else:
        from rich.console import Console
        from rich.table import Table as Grid
        from rich.text import Text

        grid = Grid("rule", "action", "outcome", "when", "why", box=None, pad_edge=False)
        for row in shown:
            why = row.why + (f" ({row.detail})" if row.detail else "")
            grid.add_row(*(Text(cell) for cell in (row.rule, row.action, row.outcome, row.gate, why)))
        console = Console(width=None if sys.stdout.isatty() else WIDE)
        console.print(grid)
        told = ", ".join(f"{number} {outcome}" for outcome, number in sorted(counts(found).items()))
        console.print(f"{len(found)} rules: {told}; platform {status['platform']}, state {status['state']}")
    return int(any(row.outcome == FAILED for row in found))
