"""What the simulated device costs over the CPU it computes on: ``python -m bench --simulator``.

Both sides are measured in one process, in turns, by torch's own timer; it runs as a script so that no torchada is
active there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass

ROUNDS = 3
SIDES = ("cpu", "musa")


@dataclass(frozen=True)
class Case:
    """One row: a statement over `x` (2 elements), `big` (a million), `m` (16 x 16), `w` (16 x 16, with a gradient)."""

    name: str
    statement: str
    cpu: bool = True  # the CPU has it as well


CASES = (
    Case("x + x, 2 elements", "x + x"),
    Case("x + x, a million elements", "big + big"),
    Case("x.add_(x), 2 elements", "x.add_(x)"),
    Case("empty(2)", "torch.empty(2, device=side)"),
    Case("x.view(2, 1)", "x.view(2, 1)"),
    Case("mm, 16 x 16", "m.mm(m)"),
    Case("forward and backward of (m @ w).sum()", "m.mm(w).sum().backward()"),
    Case("x.item()", "one.item()"),
    Case("current_stream()", "torch.musa.current_stream()", cpu=False),
    Case("synchronize()", "torch.musa.synchronize()", cpu=False),
)


def rows(env: dict[str, str]) -> list[tuple[str, float | None, float]]:
    """(name, seconds on the CPU or None, seconds on the device)."""
    done = subprocess.run([sys.executable, __file__], check=True, env=env, stdout=subprocess.PIPE, text=True)
    return [tuple(row) for row in json.loads(done.stdout)]


def main() -> None:
    os.environ["TORCHADA"] = "0"
    import torchada.simulator

    torchada.simulator.install()
    import torch
    import torch_musa  # noqa: F401
    from torch.utils.benchmark import Timer

    found = []
    for case in CASES:
        seen: dict[str, list[float]] = {side: [] for side in SIDES if side == "musa" or case.cpu}
        for _ in range(ROUNDS):
            for side, values in seen.items():
                scope = {
                    "torch": torch,
                    "side": side,
                    "x": torch.zeros(2, device=side),
                    "one": torch.ones((), device=side),
                    "big": torch.ones(1_000_000, device=side),
                    "m": torch.ones(16, 16, device=side),
                    "w": torch.ones(16, 16, device=side, requires_grad=True),
                }
                run = Timer(case.statement, globals=scope, num_threads=1).blocked_autorange(min_run_time=0.1)
                values.extend(run.times)  # the smallest counts: other work on the machine only ever adds
        found.append((case.name, min(seen["cpu"]) if case.cpu else None, min(seen["musa"])))
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
