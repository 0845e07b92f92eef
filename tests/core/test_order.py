"""Every import order gives the same answers (design, invariant 3)."""

import functools
import itertools
import sys
import types

import pytest

from torchada import adopt

PROBE = """
import json, sys
import torch
import torchada

def answers():
    x = torch.ones(2, device="cuda:1")
    return {
        "device": str(torch.device("cuda:1")),
        "tensor": str(x.device),
        "to": str(torch.ones(2).to("cuda").device),
        "is_cuda": x.is_cuda,
        "count": torch.cuda.device_count(),
        "is_available": torch.cuda.is_available(),
        "stream": type(torch.cuda.current_stream()).__module__,
        "same_stream_class": isinstance(torch.cuda.current_stream(), torch.cuda.Stream),
        "sum": (x + x).sum().item(),
        "exact_module": type(torch.cuda).__name__,
        "one_object": torch.cuda is sys.modules["torch.cuda"],
        "child": torch.cuda.memory is sys.modules["torch.cuda.memory"],
        "status": torchada.status()["state"],
    }

print(json.dumps(answers(), sort_keys=True))
"""
EXPECTED = {
    "device": "musa:1",
    "tensor": "musa:1",
    "to": "musa:0",
    "is_cuda": True,
    "count": 2,
    "is_available": False,
    "stream": "torch_musa.core.stream",
    "same_stream_class": True,
    "sum": 4.0,
    "exact_module": "module",
    "one_object": True,
    "child": True,
    "status": "armed",
}
# TORCHADA=0 keeps the import of torchada inert; the explicit call later is the late activation.
LATE = "import os; os.environ.pop('TORCHADA', None); import torchada; torchada.activate()"
SIMULATOR = "import torchada.simulator; torchada.simulator.install()"


def check(done):
    import json

    assert json.loads(done.stdout.splitlines()[-1]) == EXPECTED
    assert "TorchadaWarning" not in done.stderr


@pytest.mark.parametrize(
    "first", ["torch", "torch_musa", "torch.cuda", "torch.cuda.memory", "torch.nn", "torch._dynamo"]
)
def test_torchada_first(run_python, first):
    check(run_python(f"import torchada\nimport {first}\n{PROBE}"))


@pytest.mark.parametrize(
    ("first", "dynamo"), list(itertools.product(["torch", "torch_musa"], [False, True])), ids=lambda value: str(value)
)
def test_torch_first(run_python, first, dynamo):
    code = f"{SIMULATOR}\nimport {first}\n{'import torch._dynamo' if dynamo else ''}\n{LATE}\n{PROBE}"
    check(run_python(code, env={"TORCHADA": "0"}))


def test_torch_first_without_the_backend_imported(run_python):
    """Late activation imports torch_musa itself."""
    code = f"{SIMULATOR}\nimport torch, sys\nassert 'torch_musa' not in sys.modules\n{LATE}\n{PROBE}"
    check(run_python(code, env={"TORCHADA": "0"}))


@pytest.mark.parametrize("autoload", ["0", "1"])
def test_torchs_own_autoload_setting_does_not_matter(run_python, autoload):
    env = {"TORCH_DEVICE_BACKEND_AUTOLOAD": autoload}
    done = run_python(
        f"import torchada\n{PROBE}\nimport os; assert os.environ['TORCH_DEVICE_BACKEND_AUTOLOAD'] == '{autoload}'\n",
        env=env,
    )
    check(done)


def test_importing_torchada_in_the_middle_of_torch(run_python):
    """A module that torch imports imports torchada: it stays dormant until torch is done, and no longer."""
    code = f"""
import sys, importlib.abc, importlib.util

class Hook(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "torch.nn":
            sys.meta_path.remove(self)
            import torchada
        return None

sys.meta_path.insert(0, Hook())
import torch
assert str(torch.device("cuda:1")) == "musa:1"  # before anything asked for torch.cuda
assert type(torch.__spec__) is importlib.machinery.ModuleSpec
{PROBE}
"""
    check(run_python(code))


def test_importing_twice_and_activating_twice(run_python):
    code = f"""
import torchada
import torch
before = (torch.cuda, torch.cuda.Stream, list(sys.meta_path) if 'sys' in globals() else None)
for _ in range(2):
    assert torchada.activate() is True
import importlib, sys
count = len(sys.meta_path)
importlib.reload(torchada)
assert torchada.activate() is True
assert len(sys.meta_path) == count
assert (torch.cuda, torch.cuda.Stream) == before[:2]
{PROBE}
"""
    check(run_python(code))


def test_stale_names_are_reported_not_rewritten(run_python):
    code = f"""
{SIMULATOR}
import torch
from torch.cuda import Stream, current_stream
native = Stream
import warnings
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    {LATE.replace(";", chr(10) + "   ")}
text = " ".join(str(item.message) for item in caught)
assert "__main__.Stream" in text and "__main__.current_stream" in text, text
assert Stream is native
assert torch.cuda.Stream is not native
"""
    run_python(code, env={"TORCHADA": "0"})


COMPILED = """
def f(x):
    y = torch.zeros(2, device="cuda:1") + 1
    z = x.to("cuda:1") if x.is_cuda else x
    with torch.cuda.device(1):
        i = torch.cuda.current_device()
    w = torch.ones_like(z, device=torch.device("cuda", 1))
    if torch.cuda.is_available():
        w = w * 100
    return y + z + w + i

x = torch.ones(2, device="cuda")
for backend in ("eager", "aot_eager"):
    compiled = torch.compile(f, backend=backend, fullgraph=True)
    assert torch.equal(compiled(x), f(x)) and str(compiled(x).device) == "musa:1"
torchada.deactivate()
from torch._dynamo.device_interface import CudaInterface
print(CudaInterface.device is torch.cuda.device)
"""
# What torch_musa does to Dynamo's tables: the same kind of entry, for its own class, beside torch's.
BOTH = """
from torch._dynamo.variables import torch as table
import torch_musa
table.both = {torch.cuda.StreamContext: 1, torch_musa.StreamContext: 2}
"""


@pytest.mark.parametrize("dynamo", ["after", "before", "used before"])
def test_dynamo_before_and_after(run_python, dynamo):
    """The same code compiles without a graph break whether Dynamo is imported, or used, before activation or after."""
    if dynamo == "after":
        run_python(f"import torchada\nimport torch\n{COMPILED}")
        return
    warm = "torch.compile(lambda x: x + torch.cuda.is_available(), backend='eager', fullgraph=True)(torch.ones(1))"
    start = f"{SIMULATOR}\nimport torch, torch._dynamo\n{warm if dynamo == 'used before' else ''}\n{BOTH}"
    check_both = "assert list(table.both.values()) == [1, 2], table.both"
    code = f"{start}\n{LATE}\n{check_both}\n{COMPILED}\n{check_both}\nprint(CudaInterface.device is torch.cuda.device)"
    done = run_python(code, env={"TORCHADA": "0"})
    assert done.stdout.split()[-1] == "True"  # Dynamo's table holds torch's own class again


def test_a_module_of_two_names_is_named_once(run_python):
    done = run_python(
        """
        import sys
        from torch.cuda import Stream
        sys.modules["second_name"] = sys.modules["__main__"]
        import torchada
        """
    )
    assert "still torch's own: __main__.Stream. Activate" in done.stderr, done.stderr


def test_caches_of_inductor_forget_values_and_what_runs_once_does_not_run_again(monkeypatch):
    """Inductor registers its patterns in cached functions, and refuses to do it twice."""
    runs = []
    module = types.ModuleType("torch._inductor.of_this_test")
    module.once = functools.cache(lambda: runs.append(1))
    module.value = functools.cache(lambda: runs)
    monkeypatch.setitem(sys.modules, module.__name__, module)
    for _ in range(2):
        module.once()
        module.value()
        adopt._swap_all({})
        assert module.value.cache_info().currsize == 0
    assert runs == [1]
