"""The simulated device among threads, in forked processes, and at the end of a process, in any order of teardown."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

RunPython = Callable[..., "object"]

PREAMBLE = """
import atexit, gc, os, sys, threading, time
import torch_musa
x = torch.ones(64, 64, device="{device}")
"""
AS_ON_THE_CPU = None  # torch itself crashes here, with CPU tensors as well; not worse than that
# What a program leaves behind when it ends, and the exit status it has to have (0 unless said).
EXITS: dict[str, str | tuple[str, int | None]] = {
    "a tensor in a module": "",
    "a device that was never used": "del x; torch_musa.device_count()",
    "a cycle with __del__": """
class Node:
    def __init__(self):
        self.tensor, self.me = torch.ones(8, device="musa"), self
    def __del__(self):
        assert self.tensor.add_(1).sum().item() == 16
node = Node()
gc.disable()
""",
    "an atexit handler": "atexit.register(lambda: print((x + 1).sum().item()))",
    "an atexit handler that frees": "atexit.register(lambda: (globals().pop('x'), torch_musa.empty_cache()))",
    "a daemon thread at work": (
        """
def work():
    while True:
        (x @ x).sum().item()
threading.Thread(target=work, daemon=True).start()
time.sleep(0.1)
""",
        AS_ON_THE_CPU,
    ),
    "a daemon thread that waits": """
def work():
    with torch_musa.stream(torch_musa.Stream()):
        kept = torch.ones(1000, device="musa").add_(1)
        ready.set()
        time.sleep(100)
ready = threading.Event()
threading.Thread(target=work, daemon=True).start()
ready.wait()
""",
    "a tensor of a thread": """
local = threading.local()
def work():
    local.tensor = torch.ones(8, device="musa")
    time.sleep(0.05)
threading.Thread(target=work).start()
""",
    "a generator": "g = torch.Generator(device='musa'); y = torch.randn(8, generator=g, device='musa')",
    "streams and events": """
one, two = torch_musa.Stream(), torch_musa.Event(enable_timing=True)
with torch_musa.stream(one):
    y = x @ x
    two.record()
torch_musa.set_stream(one)
""",
    "work that nobody waits for": """
s = torch_musa.Stream()
with torch_musa.stream(s):
    for _ in range(200):
        y = x @ x
del x, y
""",
    "pinned memory": "y = torch.ones(8).pin_memory('musa'); z = y.to('musa', non_blocking=True); del y",
    "a data loader": """
from torch.utils.data import DataLoader, TensorDataset
loader = DataLoader(TensorDataset(torch.ones(64, 2)), 2, num_workers=1, pin_memory=True, persistent_workers=True)
batches = iter(loader)
assert next(batches)[0].to("musa").sum().item() == 4
""",
    "an open profiler": ("profile = torch.profiler.profile()\nprofile.__enter__()\ny = x @ x", AS_ON_THE_CPU),
    "autograd's threads": "x.requires_grad_(); (x @ x).sum().backward()",
    "a hook that holds a graph": """
x.requires_grad_()
y = (x @ x).sum()
y.register_hook(lambda grad: (x, y, grad)[2])
y.backward(retain_graph=True)
""",
    "sys.exit in a thread": """
thread = threading.Thread(target=lambda: (x.sum().item(), sys.exit(5)))
thread.start()
""",
    "sys.exit": ("sys.exit(3)", 3),
    "os._exit": ("y = x @ x; os._exit(7)", 7),
    "an exception": ("kept = [x]\nraise ZeroDivisionError('meant')", 1),
    "an exception out of a stream": ("with torch_musa.stream(torch_musa.Stream()):\n    y = x @ x; 1 / 0", 1),
    "torch_musa taken out of sys.modules": """
for name in [name for name in sys.modules if name.startswith("torch_musa")]:
    del sys.modules[name]
del torch_musa
gc.collect()
atexit.register(lambda: (x + 1).sum().item())
""",
}

# Forked children with an interpreter each that ends as every interpreter does; torch is imported once.
RUN_EXITS = """
import json, os, signal, sys, tempfile
import torchada.simulator
torchada.simulator.install()
torchada.simulator.prepare()
import torch
results = {}
for name, source in json.loads(sys.argv[1]).items():
    err = tempfile.TemporaryFile()
    pid = os.fork()
    if pid == 0:
        signal.alarm(60)  # one that hangs ends with status -14
        os.dup2(err.fileno(), 2)
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        break
    _, status = os.waitpid(pid, 0)
    err.seek(0)
    results[name] = [os.waitstatus_to_exitcode(status), err.read().decode()]
else:
    print(json.dumps(results))
    os._exit(0)
exec(compile(source, name, "exec"))
"""


@pytest.mark.parametrize("mode", ["0", "1"], ids=["in order", "asynchronous"])
def test_no_exit_crashes(run_python: RunPython, mode: str) -> None:
    programs = {name: (end, 0) if isinstance(end, str) else end for name, end in EXITS.items()}
    sources = {name: PREAMBLE.format(device="musa") + source for name, (source, _) in programs.items()}
    reference = {name: source for name, (source, status) in programs.items() if status is AS_ON_THE_CPU}
    sources |= {f"{name}, CPU": PREAMBLE.format(device="cpu") + source for name, source in reference.items()}
    done = run_python(RUN_EXITS, json.dumps(sources), env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": mode})
    results = json.loads(done.stdout)
    assert results.keys() == sources.keys()
    wrong = {}
    for name, (_, status) in programs.items():
        found, err = results[name]
        if status is AS_ON_THE_CPU:
            good = found in (0, results[f"{name}, CPU"][0])
        else:
            good = found == status and (not err or status == 1)
        if not good:
            wrong[name] = f"exit status {found}\n{err}"
    assert not wrong, "\n".join(f"{name}: {text}" for name, text in wrong.items())
    assert results["an exception"][1].rstrip().endswith("ZeroDivisionError: meant")


@pytest.mark.parametrize("mode", ["0", "1"], ids=["in order", "asynchronous"])
def test_threads_get_right_numbers(run_python: RunPython, mode: str) -> None:
    code = """
    import torchada.simulator
    torchada.simulator.install()
    import torch, torch_musa
    from tests.simulator.hammer import hammer
    count = hammer(3)
    torch_musa.synchronize()
    for device in range(torch_musa.device_count()):
        torch_musa.synchronize(device)
        assert torch_musa.memory_allocated(device) == 0, torch_musa.memory_summary(device)
    print(len(count), min(count.values()) > 3)
    """
    done = run_python(code, env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": mode})
    assert done.stdout.split() == ["7", "True"], done.stdout
