"""``python -m torchada simulate``: tell about the simulated device, or run a program on it."""

from __future__ import annotations

import argparse
import json
import os
import sys
from typing import Any

__all__ = ["gather", "main"]

WIDE = 160  # columns where the output goes to a file or a pipe


def gather() -> dict[str, Any]:
    """What ``--info`` prints: `torchada.simulator.info()`, and the device's properties where it is built.

    Builds nothing. Raises ValueError for a setting the device does not understand, RuntimeError when a real
    torch_musa is installed, ImportError when torch is missing or older than the torch_musa that is simulated.
    """
    from .. import simulator

    state = simulator.info()
    if state["built"] and not state["imported"]:
        simulator.install()
        import torch_musa

        if torch_musa.is_available():
            torch_musa.current_device()  # initialises, and so binds the properties
        state = simulator.info()
    return state


def main(command: str, argv: list[str]) -> int:
    """Carry out the command with its arguments *argv*; the exit status. Does not return when it runs a program."""
    if argv and (argv[0] == "-" or argv[0][:2] in ("-m", "-c") or not argv[0].startswith("-")):
        from ..run import run

        os.environ["TORCHADA_SIMULATE"] = "1"
        run(argv)
    parser = argparse.ArgumentParser(
        prog=f"python -m torchada {command}",
        usage="%(prog)s --info [--json]\n       %(prog)s script.py [args] | -m module [args] | -c code [args]",
        description="Tell about the simulated MUSA device, or run a program on it (as --simulate does).",
    )
    parser.add_argument("--info", action="store_true", help="print device, version, defects, build and settings")
    parser.add_argument("--json", action="store_true", help="with --info: print JSON")
    options = parser.parse_args(argv)
    if not options.info:
        parser.error("nothing to do: give --info or a program")
    try:
        state = gather()
    except (ValueError, RuntimeError, ImportError) as error:
        print(f"torchada: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(state, indent=2))
    else:
        show(state)
    return 0


def show(state: dict[str, Any]) -> None:
    """Print what `gather` gave, for people."""
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    from .knobs import KNOBS
    from .profiles import DEFECTS

    console = Console(width=None if sys.stdout.isatty() else WIDE, highlight=False)

    def grid(title: str, rows: list[tuple[str, ...]]) -> None:
        table = Table(show_header=False, box=None, pad_edge=False)
        for name, *cells in rows:
            table.add_row(Text(f"  {name}"), *(Text(cell) for cell in cells))
        console.print(title)
        console.print(table)

    device, version = state["device"], state["profile"]
    rows: list[tuple[str, ...]] = [("count", str(state["devices"]))]
    if device:
        rows += [
            ("name", device["name"]),
            ("capability", f"{device['capability'][0]}.{device['capability'][1]} ({device['architecture']})"),
            ("memory", f"{device['memory_bytes'] / 2**30:g} GiB per device"),
            ("multiprocessors", str(device["multiprocessors"])),
        ]
    elif not state["built"]:
        rows.append(("properties", "told when it is built"))
    grid("device", rows)
    grid(
        "torch_musa",
        [("version", version["version"]), ("MUSA", version["musa"]), ("needs torch", f"{version['torch']} or newer")],
    )
    grid("defects", [(name, DEFECTS[name].what) for name in state["defects"]] or [("none",)])
    built = {None: "torch is not installed", True: "yes", False: "no: the first use builds it"}[state["built"]]
    grid("build", [("built", built), ("library", state["library"] or "-"), ("cache", state["cache"])])
    values = state["knobs"]
    settings: list[tuple[str, ...]] = [
        (name, values[name] or f"not set: {knob.default}", knob.meaning) for name, knob in KNOBS.items()
    ]
    grid("settings", settings)
