"""What torchada adds to compiling a function and to registering custom operators, in fresh processes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping

ROUNDS = 3
START = {
    "native": "import torchada, torchada.simulator; torchada.simulator.install(); import torch, torch_musa\n",
    "active": "import torchada, torch, torch_musa\n",
}
# Seconds are processor time: what the process itself did, whatever else runs on the machine.
COMPILE = """
import time, torch._dynamo, torch._functorch.aot_autograd
model = torch.nn.Linear(8, 8).to({device!r})
x = torch.ones(4, 8, device={device!r})
def warm(y):
    return y + 1
torch.compile(warm, backend="aot_eager")(torch.ones(2))
def f(x):
    y = model(x).relu() + torch.ones(8, device={device!r})
    return (y.to({device!r}) * torch.arange(8, device=x.device)).sum()
started = time.process_time()
torch.compile(f, backend="aot_eager", fullgraph=True)(x).backward()
print(time.process_time() - started)
"""
REGISTER = """
import time
COUNT = 300
library = torch.library.Library("bench", "FRAGMENT")
for number in range(COUNT):
    library.define(f"f{{number}}(Tensor x) -> Tensor")
def f(x):
    return x
started = time.process_time()
for number in range(COUNT):
    library.impl(f"f{{number}}", f, {key!r})
print((time.process_time() - started) / COUNT)
"""
ROWS = (
    ("first call of a compiled function, aot_eager", COMPILE),
    ("Library.impl for the device", REGISTER),
)
SPELLED = {"native": {"device": "musa", "key": "PrivateUse1"}, "active": {"device": "cuda", "key": "CUDA"}}


def rows(environment: Mapping[str, str]) -> list[tuple[str, float, float]]:
    """Name, native and active seconds of each row: the smallest of alternating processes."""
    found = []
    for name, code in ROWS:
        times: dict[str, list[float]] = {"native": [], "active": []}
        for _ in range(ROUNDS):
            for side, seen in times.items():
                command = [sys.executable, "-c", START[side] + code.format(**SPELLED[side])]
                env = {**environment, "TORCHADA": "0" if side == "native" else "1"}
                done = subprocess.run(command, env=env, check=True, stdout=subprocess.PIPE, text=True)
                seen.append(float(done.stdout.splitlines()[-1]))
        found.append((name, min(times["native"]), min(times["active"])))
    return found
