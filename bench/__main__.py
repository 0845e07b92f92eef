"""``python -m bench``: measure every budget row, print the table and write docs/benchmarks.md."""

from __future__ import annotations

import argparse
import os
import platform
import re
import subprocess
import sys
import tempfile
from datetime import datetime, timezone
from pathlib import Path

import pyperf
from rich.console import Console
from rich.table import Table

from bench import compiling, graphs, simulator
from bench.cases import CASES

ROOT = Path(__file__).resolve().parent.parent
TARGET = ROOT / "docs" / "benchmarks.md"
START = "import sys"
ROUNDS = 5  # a process may run at half speed as a whole: many short ones, not few long ones
NATIVE_IMPORT = "import torchada, torchada.simulator; torchada.simulator.install(); import torch, torch_musa"
ACTIVE_IMPORT = "import torchada, torch, torch_musa"


def measure(case: int, folder: Path) -> tuple[float, float]:
    """Seconds of one case, native and active: the smallest values of alternating runs, so that load which comes and
    goes hits both sides."""
    values: dict[str, list[float]] = {"native": [], "active": []}
    for turn in range(ROUNDS):
        for mode, seen in values.items():
            file = folder / f"{case}-{mode}-{turn}.json"
            script = str(ROOT / "bench" / "cases.py")
            command = [sys.executable, script, "--mode", mode, "--case", str(case), "-o", str(file), "--quiet"]
            subprocess.run(command, check=True, cwd=ROOT, env=environment(), stdout=subprocess.DEVNULL)
            seen.extend(pyperf.Benchmark.load(str(file)).get_values())
    return min(values["native"]), min(values["active"])


def environment(**extra: str) -> dict[str, str]:
    """The caller's, less what would change the figures: an installed package has its byte code compiled."""
    left_out = ("TORCHADA", "PYTHONDONTWRITEBYTECODE")
    env = {key: value for key, value in os.environ.items() if not key.startswith(left_out)}
    return env | {"PYTHONPATH": str(ROOT), "TORCHADA_SIMULATE": "1", "OMP_NUM_THREADS": "1"} | extra


def command_time(folder: Path, name: str, command: list[str], env: dict[str, str], processes: int) -> float:
    """Seconds one command takes: the smallest of the values, since other work only ever adds."""
    file = folder / f"{name}.json"
    runner = [sys.executable, "-m", "pyperf", "command", "--quiet", "-p", str(processes), "-n", "1", "-w", "1", "-o"]
    inherit = ["--inherit-environ", ",".join(env)]
    line = [*runner, str(file), *inherit, "--", *command]
    subprocess.run(line, check=True, env=env, cwd=folder, stdout=subprocess.DEVNULL)
    return float(min(pyperf.Benchmark.load(str(file)).get_values()))


def alternating(
    folder: Path, name: str, code: str | tuple[str, str], native: dict[str, str], active: dict[str, str], processes: int
) -> tuple[float, float]:
    """Both sides of a command, in turns."""
    codes = (code, code) if isinstance(code, str) else code
    times: tuple[list[float], list[float]] = ([], [])
    for turn in range(ROUNDS):
        for side, env in enumerate((native, active)):
            command = [sys.executable, "-c", codes[side]]
            times[side].append(command_time(folder, f"{name}{side}{turn}", command, env, processes))
    return min(times[0]), min(times[1])


def start_rows(folder: Path) -> list[tuple[str, str, str, str, bool]]:
    """Interpreter start with the .pth against without, and the import of torch."""
    site = folder / "site"
    site.mkdir()
    (site / "sitecustomize.py").write_text((ROOT / "torchada" / "_site" / "torchada.pth").read_text())
    plain = environment(PYTHONPATH=str(ROOT))
    hooked = environment(PYTHONPATH=f"{site}{os.pathsep}{ROOT}")
    without, with_pth = alternating(folder, "start", START, plain, hooked, processes=4)
    rows = [
        ("interpreter start with the .pth", seconds(without), seconds(with_pth), "+3 ms", with_pth - without <= 3e-3)
    ]
    switched_off, switched_on = environment(TORCHADA="0"), environment(TORCHADA="1")
    native, active = alternating(
        folder, "import", (NATIVE_IMPORT, ACTIVE_IMPORT), switched_off, switched_on, processes=2
    )
    within = active - native <= max(0.03 * native, 0.060)
    rows.append(("import torch and torch_musa", seconds(native), seconds(active), "+3 % or +60 ms", within))
    return rows


def seconds(value: float) -> str:
    for unit, scale in (("ns", 1e9), ("us", 1e6), ("ms", 1e3)):
        if value * scale < 1000:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s"


def case_rows(folder: Path) -> list[tuple[str, str, str, str, bool]]:
    rows = []
    for index, case in enumerate(CASES):
        base, ours = measure(index, folder)
        if case.absolute:
            budget, within = f"+{seconds(case.budget)}", ours - base <= case.budget
        else:
            budget, within = f"{case.budget:g}x", ours <= base * case.budget
        rows.append((case.name, seconds(base), seconds(ours), budget, within))
    return rows


def ratio(base: str, ours: str) -> str:
    units = {"ns": 1e-9, "us": 1e-6, "ms": 1e-3, "s": 1.0}
    number = [float(text.split()[0]) * units[text.split()[1]] for text in (base, ours)]
    return f"{number[1] / number[0]:.3f}"


def machine() -> str:
    import torch

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.split(":")[1].strip() for line in lines if line.startswith("model name")), "unknown processor")
    return (
        f"{os.cpu_count()} cores ({model}), {platform.system()} {platform.release().split('-')[0]}, "
        f"Python {platform.python_version()}, torch {torch.__version__}"
    )


def write_section(mark: str, text: str) -> None:
    """Replace what follows the line *mark* in docs/benchmarks.md, up to the next mark or heading."""
    old = TARGET.read_text() if TARGET.exists() else ""
    before, _, after = old.partition(mark)
    rest = re.search(r"^(## |<!-- )", after, re.MULTILINE)
    when = datetime.now(timezone.utc).date().isoformat()
    section = f"{mark}\nMeasured {when} on {machine()}.\n\n{text}\n"
    TARGET.write_text(f"{before}{section}" + (f"\n{after[rest.start() :]}" if rest else ""))


def simulator_cost(write: bool) -> int:
    """The simulated device against the CPU."""
    found = simulator.rows(environment())
    head = ("what", "CPU", "simulated device", "more")
    cells = [
        (what, seconds(cpu) if cpu else "", seconds(musa), f"+{seconds(max(musa - cpu, 0.0))}" if cpu else "")
        for what, cpu, musa in found
    ]
    show(head, cells)
    if write:
        write_section("<!-- simulator -->", markdown(head, cells))
    return 0


def graph_cost(write: bool) -> int:
    """Replays below and above the bound of executables, with rotation and without."""
    found = graphs.rows(environment())
    head = ("graphs, executables allowed", "rotation", "replay", "evictions")
    cells = [(what, how, seconds(value), str(evictions)) for what, how, value, evictions in found]
    show(head, cells)
    if write:
        write_section("<!-- graphs -->", markdown(head, cells))
    return 0


def compile_cost(write: bool) -> int:
    """Compiling and registering, natively and with torchada."""
    head = ("what", "native", "with torchada", "ratio")
    found = compiling.rows(environment())
    cells = [(what, seconds(base), seconds(ours), f"{ours / base:.3f}") for what, base, ours in found]
    show(head, cells)
    if write:
        write_section("<!-- compile -->", markdown(head, cells))
    return 0


def show(head: tuple[str, ...], cells: list[tuple[str, ...]]) -> None:
    grid = Table(*head)
    for row in cells:
        grid.add_row(*row)
    Console(width=140).print(grid)


def markdown(head: tuple[str, ...], cells: list[tuple[str, ...]]) -> str:
    return "\n".join("| " + " | ".join(row) + " |" for row in (head, ("---",) * len(head), *cells))


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__)
    parser.add_argument("--no-write", action="store_true", help="print only; leave docs/benchmarks.md alone")
    parser.add_argument("--simulator", action="store_true", help="what the simulated device costs over the CPU instead")
    parser.add_argument(
        "--graphs", action="store_true", help="what a graph's replay costs with and without rotation instead"
    )
    parser.add_argument("--compile", action="store_true", help="what compiling and custom operators cost instead")
    options = parser.parse_args()
    if options.compile:
        return compile_cost(write=not options.no_write)
    if options.graphs:
        return graph_cost(write=not options.no_write)
    if options.simulator:
        return simulator_cost(write=not options.no_write)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        rows = start_rows(folder) + case_rows(folder)
    head = ("what", "native", "with torchada", "ratio", "budget", "within")
    cells = [
        (what, base, ours, ratio(base, ours), budget, "yes" if ok else "NO") for what, base, ours, budget, ok in rows
    ]
    show(head, cells)
    if not options.no_write:
        write_section("<!-- table -->", markdown(head, cells))
    return 0


if __name__ == "__main__":
    sys.exit(main())
