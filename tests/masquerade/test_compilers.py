"""Dynamo, export, FX and TorchScript of masqueraded modules: as without, only the answers are CUDA's."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch._dynamo

ROOT = Path(__file__).resolve().parent.parent.parent

# condition on x, a tensor on the device: the answer of a masqueraded function when it is compiled as one graph
CONDITIONS = [
    'x.device.type == "cuda"',
    'x.device.type in ("cuda", "xpu")',
    'x.device.type.startswith("cuda")',
    'getattr(x.device, "type") == "cuda"',
    'str(x.device) == "cuda:0"',
    'f"{x.device}" == "cuda:0"',
    '"{}".format(x.device) == "cuda:0"',
    '"cuda" in repr(x.device)',
    '{"cuda": True}.get(x.device.type, False)',
    "torch.cuda.is_available()",
    "available()",
    "torch.version.cuda is not None",
    'torch.accelerator.current_accelerator().type == "cuda"',
    "helper(x)",
    "not plain.helper(x)",
]
# An older Dynamo does not follow this one: with a break, the answer is the same.
BROKEN = [
    n
    for n, condition in enumerate(CONDITIONS)
    if "current_accelerator" in condition and torch._dynamo.trace_rules.check(torch.accelerator.current_accelerator)
]
MODULE = """
import torch
from torch.cuda import is_available as available
import {other}

def helper(x):
    return x.device.type == "cuda"

@torch.jit.script
def scripted(x: torch.Tensor) -> str:
    return str(x.device)

class Module(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if x.device.type == "cuda":
            return x - 1
        return x + 1
"""
FUNCTION = """
def check{n}(x):
    if {condition}:
        return x + 1
    return x - 1
"""


@pytest.fixture(scope="module")
def outcomes(tmp_path_factory):
    folder = tmp_path_factory.mktemp("compilers")
    for name, other in (("hidden", "plain"), ("plain", "os")):
        functions = [FUNCTION.format(n=n, condition=text) for n, text in enumerate(CONDITIONS) if name == "hidden"]
        (folder / f"{name}.py").write_text(MODULE.format(other=other) + "".join(functions))
    code = f"""
import json, torchada, torch, hidden
outcomes = []
for n in range({len(CONDITIONS)}):
    function = getattr(hidden, f"check{{n}}")
    torch._dynamo.reset()
    explained = torch._dynamo.explain(function)(torch.zeros(1, device="cuda"))
    x = torch.zeros(1, device="cuda")
    compiled = torch.compile(function, backend="eager", fullgraph=n not in {BROKEN})
    outcomes.append([function(x).item(), compiled(x).item(), compiled(x).item(), explained.graph_break_count])

class Module(torch.nn.Module):
    def forward(self, x):
        return hidden.check0(x) + hidden.check4(x)

x = torch.zeros(1, device="cuda")
exported = torch.export.export(Module(), (x,), strict=True)
fx = torch.fx.symbolic_trace(lambda y: hidden.check9(y))
traced = torch.jit.trace(hidden.check0, (x,), check_trace=False)
torch._dynamo.reset()
aot = torch.compile(hidden.check0, backend="aot_eager")
scripted = torch.jit.script(hidden.Module())
answers = [exported.module()(x).item(), fx(x).item(), traced(x).item(), aot(x).item()]
print(json.dumps([outcomes, *answers, hidden.scripted(x), scripted(torch.zeros(1)).item()]))
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}", "TORCHADA_MASQUERADE": "hidden"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.parametrize("n", range(len(CONDITIONS)), ids=CONDITIONS)
def test_compiled_in_one_graph(outcomes, n):
    assert outcomes[0][n] == [1.0, 1.0, 1.0, 0]


def test_export_fx_and_trace(outcomes):
    assert outcomes[1:4] == [2.0, 1.0, 1.0]


def test_aot_autograd(outcomes):
    assert outcomes[4] == 1.0


def test_torchscript_reads_the_source_as_it_is(outcomes):
    """It has its own idea of a device, with and without a masquerade."""
    assert outcomes[5:] == ["musa:0", 1.0]
