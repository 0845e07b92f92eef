"""CUDA graphs through their CUDA names: capture, replay, rotation of executables, files of captured graphs."""

import copy
import gc
import inspect
import json
import os
import random
import subprocess
import sys
import threading

import pytest
import torch
from torch import nn

import torchada
import torchada.simulator
from tests.conftest import ROOT
from tests.programs.support import has_no_vendor_name
from torchada import _rotation

CUDA = torch.device("cuda")


@pytest.fixture(autouse=True)
def clean():
    yield
    assert not torch.cuda.is_current_stream_capturing()
    torch.cuda.synchronize()  # the device works on after whatever failed


def captured(work, **options):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, **options):
        result = work()
    return graph, result


# ---------------------------------------------------------------- capture and replay
def test_every_method_of_a_graph(tmp_path):
    x = torch.ones(4, device=CUDA)
    graph = torch.cuda.CUDAGraph()
    graph.enable_debug_mode()
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        graph.capture_begin(pool=torch.cuda.graph_pool_handle(), capture_error_mode="thread_local")
        assert torch.cuda.is_current_stream_capturing()
        y = x * 2
        graph.capture_end()
    assert not torch.cuda.is_current_stream_capturing()
    x.fill_(3)
    graph.replay()
    assert y.tolist() == [6] * 4
    assert isinstance(graph.pool(), tuple) and len(graph.pool()) == 2
    graph.debug_dump(str(tmp_path / "graph.dot"))
    assert "mul" in (tmp_path / "graph.dot").read_text()
    graph.reset()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with torch.cuda.graph(graph):
        x.add_(1)
    graph.replay()
    assert x.tolist() == [4] * 4
    has = {name for name in vars(torch.cuda.CUDAGraph) if not name.startswith("_")}
    assert {"capture_begin", "capture_end", "replay", "reset", "pool", "enable_debug_mode", "debug_dump"} <= has


@pytest.mark.parametrize("mode", ["global", "thread_local", "relaxed"])
def test_every_argument_of_a_capture(mode):
    with torchada.disabled():
        native = set(inspect.signature(torch.cuda.graph).parameters)
    assert set(inspect.signature(torch.cuda.graph).parameters) >= native
    x, stream, pool = torch.zeros(2, device=CUDA), torch.cuda.Stream(), torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(cuda_graph=graph, pool=pool, stream=stream, capture_error_mode=mode):
        assert torch.cuda.current_stream() == stream
        x.add_(1)
    assert graph.pool() == pool
    graph.replay()
    graph.replay()
    assert x.tolist() == [2, 2]
    with pytest.raises(RuntimeError, match="Unknown capture error mode"):
        with torch.cuda.graph(torch.cuda.CUDAGraph(), None, stream, "loose"):
            pass
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_graphs_share_a_pool_and_own_pools_are_given_back():
    x = torch.ones(1 << 21, device=CUDA)
    gc.collect()
    torch.cuda.empty_cache()
    before = torch.cuda.memory_reserved()
    first, a = captured(lambda: x + 1)
    used = torch.cuda.memory_reserved()
    del a
    second, b = captured(lambda: x * 5, pool=first.pool())
    assert torch.cuda.memory_reserved() == used
    third, c = captured(lambda: x * 7)
    assert torch.cuda.memory_reserved() > used and third.pool() != first.pool()
    second.replay()
    third.replay()
    assert (b[0].item(), c[0].item()) == (5, 7)
    del first, second, third, b, c
    gc.collect()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before < used


def test_random_numbers_under_replay():
    graph, noise = captured(lambda: torch.rand(4, device=CUDA))
    torch.cuda.manual_seed(3)
    want = [torch.rand(4, device=CUDA) for _ in range(3)]
    after = torch.cuda.get_rng_state()
    torch.cuda.manual_seed(3)
    for values in want:
        graph.replay()
        assert torch.equal(noise, values)
    assert torch.equal(torch.cuda.get_rng_state(), after)
    own = torch.Generator(CUDA)
    with pytest.raises(torchada.NotOnMusa, match="register_generator_state"):
        torch.cuda.CUDAGraph().register_generator_state(own)
    with pytest.raises(RuntimeError):  # and without that a capture with another generator is an error, as on CUDA
        captured(lambda: torch.rand(4, device=CUDA, generator=own))


@pytest.mark.parametrize(
    "illegal",
    [lambda x: x.sum().item(), lambda x: torch.cuda.synchronize(), lambda x: x.nonzero(), lambda x: x.cpu()],
    ids=["item", "synchronize", "nonzero", "cpu"],
)
def test_an_illegal_synchronisation_is_an_error_and_leaves_nothing(illegal):
    x, before = torch.arange(4.0, device=CUDA), torch.cuda.current_stream()
    with pytest.raises(RuntimeError, match="operation failed due to a previous error during capture") as caught:
        captured(lambda: illegal(x.add_(1)))
    assert "operation not permitted when stream is capturing" in str(caught.value.__context__)
    assert torch.cuda.current_stream() == before and x.tolist() == [0, 1, 2, 3]
    graph, y = captured(lambda: x * 2)
    graph.replay()
    assert y.tolist() == [0, 2, 4, 6]


def test_make_graphed_callables():
    torch.manual_seed(0)
    layers = [nn.Sequential(nn.Linear(4, 4), nn.Tanh()).to(CUDA) for _ in range(2)]
    twins = copy.deepcopy(layers)
    samples = tuple((torch.randn(3, 4, device=CUDA, requires_grad=True),) for _ in layers)
    options = {"num_warmup_iters": 2, "allow_unused_input": False, "pool": torch.cuda.graph_pool_handle()}
    known = inspect.signature(torch.cuda.make_graphed_callables).parameters
    assert set(options) | {"callables", "sample_args"} == set(known)  # a new argument wants a test here
    graphed = torch.cuda.make_graphed_callables(tuple(layers), samples, **options)
    launches = torchada.simulator.counters()["graph_launches"]
    for _ in range(3):
        x = torch.randn(3, 4, device=CUDA)
        inputs = x.clone().requires_grad_(), x.clone().requires_grad_()
        for (one, two), given in zip((graphed, twins), inputs, strict=True):
            two(one(given)).square().sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        for a, b in zip(layers, twins, strict=True):
            for p, q in zip(a.parameters(), b.parameters(), strict=True):
                torch.testing.assert_close(p.grad, q.grad)
                p.grad = q.grad = None
    assert torchada.simulator.counters()["graph_launches"] - launches == 12  # 2 callables, both ways, 3 times
    layers[0].eval()
    assert graphed[0](torch.ones(7, 4, device=CUDA)).shape == (7, 4)  # another mode: not the graph
    function = torch.cuda.make_graphed_callables(lambda x: (x * 2, x + 1), (torch.ones(2, device=CUDA),))
    assert [y.tolist() for y in function(torch.full((2,), 4.0, device=CUDA))] == [[8, 8], [5, 5]]


def test_make_graphed_callables_under_autocast():
    model = nn.Linear(4, 4).to(CUDA)
    sample = (torch.randn(2, 4, device=CUDA),)
    with torch.autocast("cuda", dtype=torch.bfloat16), pytest.raises(RuntimeError, match="autocast caching"):
        torch.cuda.make_graphed_callables(model, sample)
    with torch.autocast("cuda", dtype=torch.bfloat16, cache_enabled=False):
        graphed = torch.cuda.make_graphed_callables(model, sample)
        assert graphed(torch.randn(2, 4, device=CUDA)).dtype == torch.bfloat16
    with pytest.raises((AssertionError, TypeError), match="must contain only Tensors"):
        torch.cuda.make_graphed_callables(nn.Linear(4, 4).to(CUDA), (3,))


# ---------------------------------------------------------------- rotation
def many(x, count, pool=None):
    """Graphs of which number i adds 1 to x[i]."""
    pool = pool or torch.cuda.graph_pool_handle()
    graphs = []
    with torch.cuda.stream(torch.cuda.Stream()):
        for i in range(count):
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(pool=pool)
            x[i].add_(1)
            graph.capture_end()
            graphs.append(graph)
    return graphs


ROTATION = """
import gc, os, random, sys, threading
import torchada, torch
from torchada import _rotation, simulator
from tests.cuda.test_graphs import many

def numbers():
    return simulator.counters()["graph_executables"], _rotation.state()
"""


def test_more_graphs_than_the_driver_allows(run_python):
    """5,000 graphs, by a driver that has room for 256: random order, threads and streams, deletion, reset."""
    code = (
        ROTATION
        + """
torch.cuda.init()
assert not _rotation.state()["following"]       # nothing before the first capture
x = torch.zeros(5000, device="cuda")
graphs = many(x, 5000)
live, state = numbers()
assert live == state["live"] == 200 and state["graphs"] == 5000 and state["evictions"] == 4800, state
launches = simulator.counters()["kernel_launches"]
order = random.sample(range(5000), 5000) + random.choices(range(5000), k=1000)
for i in order:
    graphs[i].replay()
torch.cuda.synchronize()
want = torch.bincount(torch.tensor(order), minlength=5000).tolist()
assert x.tolist() == want
assert simulator.counters()["kernel_launches"] == launches      # no model code ran again

def replay(seed, resets):
    pick = random.Random(seed)
    with torch.cuda.stream(torch.cuda.Stream()):
        for _ in range(300):
            i = seed + 4 * pick.randrange(1250)
            graphs[i].replay()
            if resets and pick.random() < 0.1:
                graphs[i].reset()
                graphs[i] = spare = torch.cuda.CUDAGraph()
                with lock:
                    spare.capture_begin(pool=pool, capture_error_mode="thread_local")
                    x[i].add_(1)
                    spare.capture_end()
lock, pool = threading.Lock(), torch.cuda.graph_pool_handle()
for resets in (False, True):
    total = x.sum().item()
    threads = [threading.Thread(target=replay, args=(seed, resets)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.cuda.synchronize()
    assert x.sum().item() == total + 1200, x.sum().item() - total
    live, state = numbers()
    assert live == state["live"] <= 200
    # None was destroyed that had work to do, but by its own reset().
    assert resets or simulator.counters()["graph_executables_cut_off"] == 0

del graphs[::3]
gc.collect()
for graph in graphs[:500]:
    graph.replay()
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
except RuntimeError as error:
    assert "during capture" in str(error)
graphs[0].replay()
torch.musa.update_musa_graph_with_profile()     # instantiates all graphs anew
for graph in graphs:
    graph.reset()
live, state = numbers()
assert live == state["live"] == state["graphs"] == 0, state
torchada.deactivate()
assert not _rotation.state()["following"]
print("done")
"""
    )
    for streams in ("0", "1"):
        env = {"TORCHADA_SIM_GRAPH_EXECS": "256", "TORCHADA_GRAPH_EXEC_CAP": "200", "TORCHADA_SIM_ASYNC": streams}
        assert run_python(code, env=env).stdout.endswith("done\n")


def test_bounds_below_the_drivers_idea(run_python):
    """The driver refuses before the bound is reached, and asks nobody: others hold executables too."""
    code = (
        ROTATION
        + """
x = torch.zeros(100, device="cuda")
graphs = many(x, 100)
for graph in reversed(graphs):
    graph.replay()
assert x.tolist() == [1] * 100
live, state = numbers()
assert live == state["live"] == state["cap"] == 64 and state["overruns"] == 0, state
"""
    )
    run_python(code, env={"TORCHADA_SIM_GRAPH_EXECS": "64"})


def test_autoprobe_finds_the_bound(run_python):
    code = (
        ROTATION
        + """
torch.cuda.init()
state = _rotation.state()                       # with the device, before any capture
assert state["following"] and state["cap"] == int(sys.argv[1]), state
assert numbers()[0] == 0
"""
    )
    env = {"TORCHADA_GRAPH_AUTOPROBE": "1", "TORCHADA_SIM_GRAPH_EXECS": "300"}
    run_python(code, "172", env=env)
    done = run_python(code, "1900", env={**env, "TORCHADA_GRAPH_EXEC_MARGIN": "300"})
    assert "TORCHADA_GRAPH_EXEC_MARGIN=300 leaves none; the bound stays 1900" in done.stderr


def test_what_a_probed_bound_means(monkeypatch):
    from torchada.graph_settings import graph_settings
    from torchada.shims.cuda_graphs import PROBE_LIMIT, _probed

    assert _probed(2048, graph_settings()) == 1920
    assert _probed(-1, graph_settings()) == PROBE_LIMIT  # no bound was found
    monkeypatch.setenv("TORCHADA_GRAPH_EXEC_MARGIN", "0")
    assert _probed(2048, graph_settings()) == 2048
    monkeypatch.setenv("TORCHADA_GRAPH_EXEC_CAP", "100")
    assert _probed(2048, graph_settings()) == _probed(-1, graph_settings()) == 100
    assert _probed(50, graph_settings()) == 50


def test_rotation_can_be_switched_off(run_python):
    code = (
        ROTATION
        + """
x = torch.zeros(100, device="cuda")
try:
    many(x, 100)
except RuntimeError as error:
    assert "out of memory" in str(error) and not _rotation.state()["following"]
    print("refused")
"""
    )
    env = {"TORCHADA_SIM_GRAPH_EXECS": "64", "TORCHADA_GRAPH_ROTATION": "0"}
    assert run_python(code, env=env).stdout == "refused\n"


def test_where_rotation_cannot_be(run_python):
    """Said once, with the reason; captures work."""
    code = """
import torchada, torch, torch_musa
from torchada import _rotation
def start(*args):
    raise RuntimeError("no library of torch_musa calls musaGraphLaunch in a way that can be followed")
_rotation.start = start
from tests.cuda.test_graphs import many
x = torch.zeros(3, device="cuda")
for graph in many(x, 3):
    graph.replay()
assert x.tolist() == [1] * 3
"""
    told = run_python(code).stderr
    assert told.count("graph executable rotation is off: no library of torch_musa calls musaGraphLaunch") == 1


@pytest.mark.parametrize(
    ("name", "value", "told"),
    [
        ("TORCHADA_GRAPH_EXEC_CAP", "0", "use a whole number from 1 to"),
        ("TORCHADA_GRAPH_EXEC_CAP", "many", "use a whole number from 1 to"),
        ("TORCHADA_GRAPH_EXEC_CAP", "18446744073709551616", "use a whole number from 1 to"),
        ("TORCHADA_GRAPH_EXEC_CAP", "9" * 5000, "use a whole number from 1 to"),
        ("TORCHADA_GRAPH_EXEC_MARGIN", "-1", "use a whole number from 0 to"),
        ("TORCHADA_GRAPH_ROTATION", "perhaps", "use one of 1, true"),
        ("TORCHADA_GRAPH_AUTOPROBE", "2", "use one of 1, true"),
        ("TORCHADA_DEBUG_CPP_OPS", "maybe", "use one of 1, true"),
        ("TORCHADA_CPP_OPS_VERBOSE", "maybe", "use one of 1, true"),
    ],
)
def test_wrong_settings(name, value, told, monkeypatch):
    from torchada.engine import ENGINE
    from torchada.facts import check_switches

    monkeypatch.setenv(name, value)
    with pytest.raises(torchada.ConfigError, match=f"{name}='{value}' is not understood: {told}"):
        check_switches(ENGINE.table)


def test_wrong_settings_stop_the_activation(run_python):
    done = run_python("import torchada; torchada.activate()", env={"TORCHADA_GRAPH_EXEC_CAP": "x"}, ok=False)
    assert "ConfigError: TORCHADA_GRAPH_EXEC_CAP='x' is not understood" in done.stderr


def test_followed_in_this_process():
    x = torch.zeros(3, device=CUDA)
    before = _rotation.state()["graphs"]
    graphs = many(x, 3)
    state = _rotation.state()
    assert state["following"] and state["graphs"] == before + 3 and not state["rotating"]
    with torchada.disabled():
        pass  # graphs are alive, so their executables stay followed
    assert _rotation.state()["following"]
    graphs[0].reinstantiate_graph()
    graphs[0].replay()
    threading.Thread(target=graphs[1].replay).run()
    assert x.tolist() == [1, 1, 0] and _rotation.state()["graphs"] == before + 3
    random.choice(graphs).reset()
    assert _rotation.state()["graphs"] == before + 2


# ---------------------------------------------------------------- files
def test_graphs_are_written(run_python, tmp_path):
    code = """
import warnings, torchada, torch
x = torch.ones(2, device="cuda")
graphs = []
for scale in (2, 3):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * scale
    graph.replay()
    graphs.append(graph)
try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        x.sum().item()
except RuntimeError:
    pass
print(y.tolist())
"""
    folder = tmp_path / "made" / "on demand"
    env = {"TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH": str(folder)}
    assert run_python(code, env=env).stdout == "[3.0, 3.0]\n"
    files = sorted(folder.iterdir())
    assert len(files) == 2 and all(file.name.startswith("graph_") and file.suffix == ".dot" for file in files)
    assert all("mul" in file.read_text() for file in files)
    assert not list(tmp_path.glob("*.dot"))

    (tmp_path / "file").write_text("in the way")
    env = {"TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH": str(tmp_path / "file")}
    done = run_python(code.replace("torch\n", "torch; warnings.simplefilter('error')\n", 1), env=env)
    assert done.stdout == "[3.0, 3.0]\n"
    assert done.stderr.count("a graph could not be written") == 1, done.stderr


# ---------------------------------------------------------------- the example
def test_decode_example():
    """docs/examples/graphs/decode.py with fewer layers and requests, and a driver with room for half of its graphs."""
    program = ROOT / "docs" / "examples" / "graphs" / "decode.py"
    assert has_no_vendor_name(program.read_text())
    command = [
        sys.executable,
        "-m",
        "torchada",
        "--simulate",
        str(program),
        "--json",
        "--layers",
        "4",
        "--requests",
        "12",
    ]
    env = {**os.environ, "TORCHADA_SIM_GRAPH_EXECS": "60", "TORCHADA_GRAPH_EXEC_CAP": "50", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=240)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("78 tokens in") == 2
    result = json.loads(done.stdout.splitlines()[-1].removeprefix("RESULT "))
    assert result["graphs"] == 120 and result["tokens"] == 78 and result["different"] > 5
