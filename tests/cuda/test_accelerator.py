"""torch.accelerator, on a torch_musa whose allocator it cannot ask and on one whose allocator it can."""

import importlib.util
import sys
from dataclasses import replace

import pytest
import torch
import torch_musa

from torchada.engine import ENGINE
from torchada.rules import Forward
from torchada.simulator.toolchain import find_torch

MEMORY = importlib.util.find_spec("torch.accelerator.memory") is not None
needs_memory = pytest.mark.skipif(not MEMORY, reason="this torch's torch.accelerator has no memory functions")

USE = """
    import torchada, torch
    x = torch.empty(2**20, device="cuda:1")
    a = torch.accelerator
    assert a.memory_allocated(1) == torch.cuda.memory_allocated(1) == 2**22
    assert a.memory_allocated(torch.device("cuda:1")) == 2**22
    assert a.memory_allocated() == 0 and a.memory_allocated("cuda:1") == 2**22
    assert a.max_memory_allocated(1) >= 2**22 and a.memory_reserved(1) == torch.cuda.memory_reserved(1)
    assert a.max_memory_reserved(1) >= 2**22
    assert a.memory_stats(1)["allocated_bytes.all.current"] == 2**22
    a.reset_peak_memory_stats(1)
    a.reset_accumulated_memory_stats(1)
    assert a.memory_stats(1)["allocation.all.allocated"] == 0
    assert a.get_memory_info(1) == torch.cuda.mem_get_info(1)
    del x
    a.empty_cache()
    assert torch.cuda.memory_reserved(1) == 0
    from torchada.engine import ENGINE
    print(ENGINE.ledger.state("torch.accelerator.memory:memory_stats [torch_musa < 2.11.0.post2]").outcome)
"""


@pytest.mark.parametrize("version,outcome", [("2.7.1", "active"), ("2.11.0.post2", "gated")])
def test_memory(run_python, version, outcome):
    if not MEMORY:
        outcome = "pending"  # the module of the row is never there
    if version != "2.7.1" and not find_torch().at_least(2, 11):
        pytest.skip(f"torch_musa {version} needs torch 2.11")
    assert run_python(USE, env={"TORCHADA_SIM_TORCH_MUSA": version}).stdout.split() == [outcome]


@needs_memory
def test_without_the_rule_the_functions_raise(run_python):
    """The defect is there: torch_musa alone."""
    done = run_python(
        "import torchada.simulator; torchada.simulator.install()\nimport torch, torch_musa\ntorch_musa._lazy_init()\n"
        "torch.accelerator.memory_allocated()",
        env={"TORCHADA_SIM_TORCH_MUSA": "2.7.1", "TORCHADA": "0"},
        ok=False,
    )
    assert "DeviceAllocator" in done.stderr


def test_wrong_arguments():
    torch.cuda.init()
    with pytest.raises((RuntimeError, AssertionError)):
        torch.accelerator.memory_allocated(99)


@needs_memory
def test_the_device_is_positional():
    with pytest.raises(TypeError):
        torch.accelerator.memory_allocated(device_index=0)  # positional only, as in torch


def test_a_torch_without_memory_functions():
    rows = [rule for rule in ENGINE.table.rules if rule.module == "torch.accelerator" and isinstance(rule.do, Forward)]
    rows = [rule for rule in rows if rule.when.startswith("not ")]
    assert len(rows) == 9
    older = replace(ENGINE.facts, features=dict.fromkeys(ENGINE.facts.features, False))
    for rule in rows:
        assert (rule.gate.failing(ENGINE.facts) is None) is not ENGINE.facts.features[rule.gate.text[len("not has:") :]]
        assert rule.gate.failing(older) is None
        assert callable(getattr(torch_musa, rule.do.path.partition(":")[2]))
    assert "torch.accelerator" in sys.modules


@pytest.mark.skipif(not hasattr(torch.accelerator, "Graph"), reason="this torch has no torch.accelerator.Graph")
def test_graph():
    x = torch.zeros(4, device="cuda")
    stream = torch.Stream(device="cuda")
    graph = torch.accelerator.Graph()
    with stream, graph:
        x += 1
    graph.replay()
    graph.replay()
    torch.accelerator.synchronize()
    assert x.tolist() == [2.0] * 4
    other = torch.accelerator.Graph(pool=graph.pool(), capture_error_mode="thread_local")
    with stream, other:
        y = x * 10
    other.replay()
    torch.accelerator.synchronize()
    assert y.tolist() == [20.0] * 4
    graph.reset()
    with pytest.raises(AttributeError, match="nonsense"):
        graph.nonsense
    with pytest.raises(NotImplementedError, match="keep_graph"):
        torch.accelerator.Graph(keep_graph=True)
    assert torch.accelerator.Graph is torch.accelerator.graphs.Graph
    assert torch.accelerator.Graph.__module__ == "torch.accelerator.graphs"
