"""Operators overridden in C++: built by a real compiler on first use, right in graphs and outside."""

import contextlib
import errno
import fcntl
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

import torchada.ops
from torchada.errors import TorchadaWarning
from torchada.ops import build
from torchada.shims import cpp_ops
from torchada.simulator import toolchain
from torchada.tables.ops import COMPILED

ROOT = Path(__file__).resolve().parents[2]
NAMES = ("multinomial", "log", "log_")
INF, NAN = float("inf"), float("nan")

# What a program does that captures: nothing of the overrides is there before.
PROGRAM = """
import os, sys, torchada, torch
cache = os.path.join(os.environ["TORCH_EXTENSIONS_DIR"], "torchada_cpp_ops")
x, weights = torch.full((4,), 2.0, device="cuda"), torch.tensor([0.0, 1.0, 0.0], device="cuda")
assert x.log()[0] > 0.69 and torch.multinomial(weights, 1).item() == 1
from torchada.shims import cpp_ops
assert not cpp_ops._library
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    y, z, drawn = x.log(), (x + 1).log_(), torch.multinomial(weights, 5, replacement=True)
x.fill_(4.0)
weights.copy_(torch.tensor([0.0, 0.0, 1.0]))
graph.replay()
torch.testing.assert_close(y.cpu(), torch.full((4,), 4.0).log())
torch.testing.assert_close(z.cpu(), torch.full((4,), 5.0).log())
assert drawn.tolist() == [2] * 5
assert all(cpp_ops.calls(name) for name in ("log", "log_", "multinomial"))
"""


# ---------------------------------------------------------------- the build, with a real compiler
def counting_compiler(folder: Path) -> Path:
    """The real compiler behind a script that notes the process of each call."""
    script = folder / "cxx"
    script.write_text(f'#!/bin/sh\necho $$ >> {folder}/calls\nexec {" ".join(toolchain.compiler())} "$@"\n')
    script.chmod(0o755)
    return script


def compilers(folder: Path) -> list[int]:
    calls = folder / "calls"
    return [int(line) for line in calls.read_text().split()] if calls.exists() else []


def start(code: str, **env: str) -> "subprocess.Popen[str]":
    environ = os.environ | {"PYTHONPATH": str(ROOT)} | env
    return subprocess.Popen([sys.executable, "-c", code], env=environ, stderr=subprocess.PIPE, text=True)


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A build is killed in the middle; then two processes need the library at once. What was seen of it."""
    folder = tmp_path_factory.mktemp("cpp_ops")
    cache = folder / "cache"
    env = {"TORCH_EXTENSIONS_DIR": str(cache), "CXX": str(counting_compiler(folder))}
    killed = start(PROGRAM, **env)
    deadline = time.monotonic() + 200
    while not compilers(folder) and killed.poll() is None and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.kill()
    _, told = killed.communicate()
    (left_running,) = compilers(folder)
    left = [path.name.partition("-")[0] for path in cache.glob("torchada_cpp_ops/*/*")]
    both = [start(PROGRAM, **env) for _ in range(2)]
    ends = [(process.communicate(timeout=280)[1], process.returncode) for process in both]
    with contextlib.suppress(ProcessLookupError):  # it outlived its parent, for a while
        os.killpg(left_running, signal.SIGKILL)
    made = sorted(path.name for path in cache.glob("torchada_cpp_ops/*/*"))
    return {"cache": cache, "killed": killed.returncode, "told": told, "left": left, "ends": ends, "made": made,
            "calls": len(compilers(folder)) - 1}  # fmt: skip


def test_a_killed_build_blocks_nobody_and_two_processes_build_once(story: Any) -> None:
    assert story["killed"] == -signal.SIGKILL and "building its operator overrides" in story["told"]
    assert sorted(story["left"]) == ["build", "lock"]  # in the middle
    assert [status for _, status in story["ends"]] == [0, 0], story["ends"]
    assert story["calls"] == 2  # one process has compiled and linked
    assert story["made"] == ["lock", "overrides.so"]
    assert sorted("done" in told for told, _ in story["ends"]) == [False, True]
    assert "" in [told for told, _ in story["ends"]]  # the one that waited has nothing to say
    (tag,) = (path.name for path in story["cache"].glob("torchada_cpp_ops/*"))
    assert tag.startswith(f"mp31_mu40300-torch{torch.__version__}-")


@pytest.fixture
def fresh(story: Any, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """As in a process that has captured nothing yet, whose cache holds the library."""
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(story["cache"]))
    wanted = set(cpp_ops._wanted)
    assert wanted == set(NAMES)
    for name in NAMES:
        cpp_ops._remove(name)
    monkeypatch.setattr(cpp_ops, "_library", [])
    cpp_ops._tried.clear()
    yield
    for name in NAMES:
        cpp_ops._remove(name)
    cpp_ops._tried.clear()


@pytest.fixture
def ready(fresh: None) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # also what torch says of a kernel that takes another one's place
        assert torchada.ops.prepare() == set(NAMES)


def captured(call: Callable[[], Any]) -> tuple[torch.cuda.CUDAGraph, Any]:
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        result = call()
    return graph, result


# ---------------------------------------------------------------- rows
@pytest.mark.parametrize("rule", COMPILED, ids=lambda rule: rule.name.rpartition(".")[2])
def test_row_is_needed(rule: Any, fresh: None, rule_off: Any) -> None:
    x = torch.ones(4, device="cuda")
    name = rule.name.rpartition(".")[2]
    ways: list[Callable[[], Any]] = {
        "multinomial": [
            lambda: torch.multinomial(x, 2),
            lambda: torch.ops.aten.multinomial(x, 2),
            lambda: x.multinomial(2),
        ],
        "log": [lambda: torch.log(x), lambda: torch.log(x, out=torch.empty(4, device="cuda"))],
        "log_": [x.log_, lambda: torch.ops.aten.log_(x)],
    }[name]
    for way in ways:
        captured(way)
        with rule_off(rule.id):
            with pytest.raises(RuntimeError) as raised:
                captured(way)
            assert f"aten::{name.rstrip('_')}" in str(raised.value.__context__)
            assert way() is not None  # torch_musa's own works outside
        assert cpp_ops.calls(name)


def test_nothing_is_loaded_before_a_graph_is_captured(fresh: None) -> None:
    x = torch.ones(4, device="cuda")
    x.log(), x.log_(), torch.multinomial(x + 1, 1)
    assert not cpp_ops._library
    captured(lambda: x + 1)
    assert cpp_ops._installed == set(NAMES)


HEALTHY = """
import os, torchada, torch
from torchada.engine import ENGINE
from torchada.tables.ops import COMPILED
assert {ENGINE.ledger.state(rule.id).outcome for rule in COMPILED} == {"gated"}
x = torch.ones(4, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    x.log(), x.log_(), torch.multinomial(x + 1, 2)
graph.replay()
import torchada.ops
assert torchada.ops.prepare() == frozenset()
assert os.listdir(os.environ["TORCH_EXTENSIONS_DIR"]) == []
"""


def test_a_version_without_the_defect_builds_nothing(run_python: Any, tmp_path: Path) -> None:
    if not toolchain.find_torch().at_least(2, 11):
        pytest.skip("the first torch_musa without the defect needs torch 2.11")
    cache = tmp_path / "cache"
    cache.mkdir()
    run_python(HEALTHY, env={"TORCH_EXTENSIONS_DIR": str(cache), "TORCHADA_SIM_TORCH_MUSA": "2.11.0.post2"})


SWITCHED = """
import json, torchada, torch
from torchada.shims import cpp_ops
graph, x = torch.cuda.CUDAGraph(), torch.full((4,), 2.0, device="cuda")
with torch.cuda.graph(graph):
    x.log()
told = [sorted(cpp_ops._installed)]
calls = cpp_ops.calls("log")
torchada.deactivate()
x.log()
told += [sorted(cpp_ops._installed), cpp_ops.calls("log") - calls]
import torch_musa
try:
    with torch_musa.graph(torch_musa.MUSAGraph()):
        x.log()
except RuntimeError as error:
    told.append("aten::log" in str(error.__context__))
torchada.activate()
with torch.cuda.graph(torch.cuda.CUDAGraph()):
    x.log()
told.append(sorted(cpp_ops._installed))
print(json.dumps(told))
"""


def test_switches_and_deactivation(story: Any, run_python: Any) -> None:
    switches = ("TORCHADA_DEBUG_CPP_OPS", "TORCHADA_CPP_OPS_VERBOSE", "TORCHADA_DISABLE_OP_OVERRIDE_MULTINOMIAL")
    env = dict.fromkeys(switches, "1") | {"TORCH_EXTENSIONS_DIR": str(story["cache"])}
    done = run_python(SWITCHED, env=env)
    assert json.loads(done.stdout) == [["log", "log_"], [], 0, True, ["log", "log_"]]
    assert "operator overrides for mp_31: " in done.stderr and "overrides loaded from" in done.stderr
    assert "aten::log by its override: Float[4] on musa:0, captured" in done.stderr
    assert "overridden" not in done.stderr  # torch's warning


# ---------------------------------------------------------------- what cannot be built
def test_without_a_compiler(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    x = torch.ones(4, device="cuda")
    with pytest.warns(TorchadaWarning, match="log, torch.log_, torch.multinomial cannot be captured.*apt-get install"):
        graph, y = captured(lambda: x + 1)
    graph.replay()
    assert y.tolist() == [2.0] * 4
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(RuntimeError):  # torch_musa's own kernel, and said once
            captured(x.log)
    assert x.log().tolist() == [0.0] * 4
    monkeypatch.setenv("TORCHADA_STRICT", "1")
    cpp_ops._tried.clear()
    with pytest.raises(build.OpsBuildError, match="looked for"):
        captured(lambda: x + 1)


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [("MTGPU_TARGET", "sm_90", "no MUSA architecture"), ("CXX", "false", "compiling failed")],
)
def test_what_goes_wrong_is_told(
    name: str, value: str, text: str, fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv(name, value)
    with pytest.warns(TorchadaWarning, match=text):
        assert torchada.ops.prepare() == frozenset()


def test_a_file_that_is_no_library(fresh: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    path = build.library_path()
    path.parent.mkdir(parents=True)
    path.write_text("torn")
    with pytest.warns(TorchadaWarning, match="remove .* and it is built anew"):
        assert torchada.ops.prepare() == frozenset()


def test_an_override_that_is_wrong_is_not_used(fresh: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpp_ops, "_VALUES", (-1.0,))  # not a number, and so not equal to itself
    with pytest.warns(TorchadaWarning, match=r"on musa:0 they do not work \(ArithmeticError: \[nan\] instead"):
        assert torchada.ops.prepare() == frozenset()


MADE = "with build.ensure() as path: print(path, path.read_text())"
BUILDS = f"""
import ctypes, warnings
from torchada.ops import build
{{}}
warnings.simplefilter("always")
{MADE}
import sys; assert "torch" not in sys.modules
"""
# Root may write everywhere: without this capability it may not.
NO_OVERRIDE = """
libc, words = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 6)()
header = (ctypes.c_uint32 * 2)(0x20080522, 0)
assert libc.capget(header, words) == 0
words[0] &= ~(1 << 1)  # CAP_DAC_OVERRIDE
assert libc.capset(header, words) == 0
"""


def fake_compiler(folder: Path) -> str:
    script = folder / "fake-cxx"
    script.write_text(f"#!{sys.executable}\nimport sys\nopen(sys.argv[sys.argv.index('-o') + 1], 'w').write('made')\n")
    script.chmod(0o755)
    return str(script)


def test_a_cache_that_is_only_read(tmp_path: Path, run_python: Any) -> None:
    cache = tmp_path / "cache"
    cache.mkdir(mode=0o555)
    env = {"TORCH_EXTENSIONS_DIR": str(cache), "CXX": fake_compiler(tmp_path), "TORCHADA_SIMULATE": None}
    env |= {"TORCHADA": "0", "TMPDIR": str(tmp_path)}
    done = run_python(BUILDS.format(NO_OVERRIDE), env=env)
    own, text = done.stdout.split()
    assert text == "made" and not own.startswith(str(cache)) and not Path(own).parent.exists()
    assert "cannot keep the operator overrides" in done.stderr and "TORCH_EXTENSIONS_DIR" in done.stderr
    cache.chmod(0o755)
    first = run_python(BUILDS.format(""), env=env).stdout.split()[0]
    assert first.startswith(str(cache))
    for place in (Path(first).parent, Path(first).parents[1], cache):
        place.chmod(0o555)
    done = run_python(BUILDS.format(NO_OVERRIDE), env=env | {"CXX": "no-compiler"})
    assert done.stdout.split() == [first, "made"] and done.stderr == ""  # shipped with an image, say


def test_a_file_system_without_locks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: Any, how: int) -> None:
        raise OSError(errno.ENOLCK, os.strerror(errno.ENOLCK))

    monkeypatch.setattr(fcntl, "flock", flock)
    monkeypatch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path))
    monkeypatch.setenv("CXX", fake_compiler(tmp_path))
    others = build.library_path().parent / "build-of-another-process"
    others.mkdir(parents=True)
    with pytest.warns(TorchadaWarning, match="has no flock"):
        with build.ensure() as path:
            assert path.read_text() == "made"
    assert others.exists()


def test_where_the_cache_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCH_EXTENSIONS_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.cache_dir() == tmp_path / "torchada" / "torchada_cpp_ops"
    before = build.library_path()
    monkeypatch.setenv("MTGPU_TARGET", "22;31")
    assert build.library_path().parent.name.startswith("mp22_mp31_mu40300-torch")
    monkeypatch.delenv("MTGPU_TARGET")
    copy = tmp_path / "overrides.cpp"
    copy.write_bytes(build.SOURCE.read_bytes() + b"\n")
    monkeypatch.setattr(build, "SOURCE", copy)
    assert build.library_path() != before
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert build.cache_dir() == tmp_path / ".cache" / "torchada" / "torchada_cpp_ops"


# ---------------------------------------------------------------- log
@pytest.mark.parametrize(
    "dtype",
    [torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.int64, torch.bool, torch.complex64],
    ids=str,
)
def test_logarithms(dtype: torch.dtype, ready: None) -> None:
    values = torch.tensor([0, 1, 2, 0.25, 1e-3, 7, -1, INF, NAN]) if dtype.is_floating_point else torch.arange(9)
    values = values.to(dtype) if not dtype.is_complex else torch.complex(values.float(), torch.arange(9.0) - 4)
    here, before = values.to("cuda"), cpp_ops.calls("log")
    for x, there in ((here, values), (here[::2], values[::2]), (here.view(3, 3).T, values.view(3, 3).T)):
        torch.testing.assert_close(torch.log(x).cpu(), torch.log(there), equal_nan=True)
        out = torch.empty(0, dtype=torch.log(there).dtype, device="cuda")
        assert torch.log(x, out=out) is out
        torch.testing.assert_close(out.cpu(), torch.log(there), equal_nan=True)
        if there.dtype == out.dtype:
            mine = x.clone()
            assert mine.log_() is mine
            torch.testing.assert_close(mine.cpu(), torch.log(there), equal_nan=True)
    assert cpp_ops.calls("log") - before >= 6
    if not (dtype.is_floating_point or dtype.is_complex):
        with pytest.raises(RuntimeError, match="can't be cast"):
            here.clone().log_()
    with pytest.raises(RuntimeError, match="single memory location"):
        torch.ones(1, device="cuda").expand(3).log_()


def test_logarithms_in_autograd_and_modes(ready: None) -> None:
    x = torch.tensor([0.5, 2.0], device="cuda", requires_grad=True)
    inner = x * 1
    version = inner._version
    assert inner.log_() is inner and inner._version == version + 1
    (inner + x.log()).sum().backward()
    torch.testing.assert_close(x.grad.cpu(), 2 / x.detach().cpu())
    with torch.inference_mode():
        torch.testing.assert_close(torch.full((2,), 3.0, device="cuda").log_().cpu(), torch.full((2,), 3.0).log())
    with torch.autocast("cuda", dtype=torch.float16):
        assert torch.log(x.half()).dtype == torch.float32
    torch.testing.assert_close(torch.vmap(torch.log)(x).cpu(), x.log().cpu())
    compiled = torch.compile(lambda t: t.log() + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(x).cpu(), x.log().cpu() + 1)


def test_the_device_of_the_input_whatever_is_current(ready: None) -> None:
    stream = torch.cuda.Stream(device=1)
    x, weights = torch.full((3,), 2.0, device="cuda:1"), torch.tensor([0.0, 1.0], device="cuda:1")
    assert torch.cuda.current_device() == 0
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=stream):
        torch.cuda.set_device(0)
        y, drawn, z = x.log(), torch.multinomial(weights, 1), x.clone().log_()
        assert torch.cuda.current_device() == 0
        torch.cuda.set_device(1)
    torch.cuda.set_device(0)
    x.fill_(3.0)  # the graph was of device 1's stream: its replay follows
    weights.copy_(torch.tensor([1.0, 0.0]))
    graph.replay()
    torch.cuda.synchronize(1)
    for result in (y, z):
        assert result.device == torch.device("cuda:1")
        torch.testing.assert_close(result.cpu(), torch.full((3,), 3.0).log())
    assert drawn.item() == 0 and torch.cuda.current_device() == 0


# ---------------------------------------------------------------- multinomial
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("replacement", [False, True])
def test_draws_follow_their_weights(dtype: torch.dtype, replacement: bool, ready: None) -> None:
    torch.manual_seed(0)
    weights = torch.tensor([[1.0, 0.0, 3.0, 4.0], [0.0, 5.0, 0.0, 5.0]], dtype=dtype)
    rows = weights.repeat(2000, 1).to("cuda")
    before = cpp_ops.calls("multinomial")
    drawn = torch.multinomial(rows, 2, replacement).cpu()
    assert cpp_ops.calls("multinomial") == before + 1
    assert drawn.shape == (4000, 2) and drawn.dtype == torch.int64
    shares = weights.double() / weights.double().sum(1, keepdim=True)
    for row in range(2):
        mine = drawn[row::2]
        first = torch.bincount(mine[:, 0], minlength=4).double() / 2000
        torch.testing.assert_close(first, shares[row], atol=0.05, rtol=0)
        assert not first[shares[row] == 0].any()
        second = torch.bincount(mine[:, 1], minlength=4).double() / 2000
        if replacement:
            torch.testing.assert_close(second, shares[row], atol=0.05, rtol=0)
        else:
            assert (mine[:, 0] != mine[:, 1]).all()
        assert not second[shares[row] == 0].any()
    one = torch.multinomial(rows[0], 3, replacement)
    assert one.shape == (3,)
    out = torch.empty(0, dtype=torch.int64, device="cuda")
    assert torch.multinomial(rows, 1, out=out) is out and out.shape == (4000, 1)
    assert torch.multinomial(rows[:0], 2).shape == (0, 2)


def test_a_seed_gives_the_same_in_a_graph_and_outside(ready: None) -> None:
    weights = torch.rand(6, 50, device="cuda")
    calls = [lambda: torch.multinomial(weights, 1), lambda: torch.multinomial(weights, 9, replacement=True)]
    for call in (*calls, lambda: torch.multinomial(weights, 50)):
        graph, result = captured(call)
        torch.manual_seed(7)
        replayed = []
        for _ in range(3):
            graph.replay()
            replayed.append(result.clone())
        torch.manual_seed(7)
        for one in replayed:
            assert torch.equal(one, call())
        assert not torch.equal(replayed[0], replayed[1])
    own = [torch.Generator("cuda").manual_seed(3) for _ in range(2)]
    state = torch.cuda.get_rng_state()
    first, second = (torch.multinomial(weights, 5, generator=generator) for generator in own)
    assert torch.equal(first, second) and torch.equal(torch.cuda.get_rng_state(), state)


def test_wrong_arguments_are_refused_as_torch_does(ready: None) -> None:
    for weights, count, replacement in (
        (torch.rand(2, 2, 2), 1, False),
        (torch.tensor([1, 2]), 1, False),
        (torch.rand(3), 0, False),
        (torch.rand(3), 4, False),
        (torch.tensor([1.0, -1.0]), 1, False),
        (torch.tensor([1.0, INF]), 1, True),
        (torch.tensor([1.0, NAN]), 1, True),
        (torch.tensor([[1.0, 0.0], [0.0, 0.0]]), 1, True),
    ):
        with pytest.raises(RuntimeError) as there:
            torch.multinomial(weights, count, replacement)
        with pytest.raises(RuntimeError) as here:
            torch.multinomial(weights.to("cuda"), count, replacement)
        assert str(here.value).partition("\n")[0] == str(there.value).partition("\n")[0]
    with pytest.raises(RuntimeError, match="Long"):
        torch.multinomial(torch.rand(3, device="cuda"), 1, out=torch.empty(1, device="cuda"))


def test_threads_draw_and_capture_at_once(fresh: None) -> None:
    code = textwrap.dedent(
        """
        x = torch.full((8,), 2.0, device="cuda")
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream):
            graph = torch.cuda.CUDAGraph()
            graph.capture_begin(capture_error_mode="thread_local")
            y, drawn = x.log(), torch.multinomial(x, 2)
            graph.capture_end()
            graph.replay()
        stream.synchronize()
        results.append(bool((y.cpu() - 0.6931472).abs().max() < 1e-6) and drawn.max().item() < 8)
        """
    )
    results: list[bool] = []
    threads = [threading.Thread(target=exec, args=(code, {"torch": torch, "results": results})) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results == [True] * 4


ASYNCHRONOUS = """
import torchada, torch, torchada.ops
assert len(torchada.ops.prepare()) == 3
from torchada.simulator import counters
for d in (0, 1):
    s = torch.cuda.Stream(device=d)
    x = torch.full((1 << 16,), 2.0, device=f"cuda:{d}")
    w = torch.rand(64, 100, device=f"cuda:{d}")
    torch.cuda.synchronize(d)
    with torch.cuda.stream(s):
        g = torch.cuda.CUDAGraph()
        g.capture_begin(capture_error_mode="thread_local")
        before = counters()["host_syncs"]
        y, z = x.log(), (x + 1).log_()
        i, j = torch.multinomial(w, 5), torch.multinomial(w, 7, True)
        assert counters()["host_syncs"] == before
        g.capture_end()
        for k in range(20):
            x.fill_(k + 1.0)
            g.replay()
        before = counters()["host_syncs"]
        a = x.log()
        x.log_()
        assert counters()["host_syncs"] == before
    s.synchronize()
    torch.testing.assert_close(y.cpu(), torch.full((1 << 16,), 20.0).log())
    torch.testing.assert_close(a, y)
    torch.testing.assert_close(z.cpu(), torch.full((1 << 16,), 21.0).log())
    assert i.max() < 100 and j.max() < 100 and (i.sort(1).values.diff() > 0).all()
assert torch.cuda.current_device() == 0
"""


def test_on_asynchronous_streams_nothing_is_waited_for(story: Any, run_python: Any) -> None:
    run_python(ASYNCHRONOUS, env={"TORCH_EXTENSIONS_DIR": str(story["cache"]), "TORCHADA_SIM_ASYNC": "1"})


# ---------------------------------------------------------------- the documentation's example
EXAMPLE = """
import sys, torchada, torch
x = torch.tensor([0.0, 1.0, 1e-9], device="cuda:1")
own = x.expm1()
torch.ops.load_library(sys.argv[1])
assert x.expm1().tolist() == (x.cpu().exp() - 1).tolist() != own.tolist() and torch.cuda.current_device() == 0
"""


def test_the_example_of_the_documentation(run_python: Any, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "overrides.md").read_text()
    source, found = text.partition("<!-- example -->\n```cpp\n")[2].partition("```")[0], toolchain.find_torch()
    (tmp_path / "override.cpp").write_text(source)
    flags = [*toolchain.compile_flags(found), "-O0", *toolchain.torch_headers(found)]
    libraries = [f"-L{found.root / 'lib'}", "-ltorch", "-ltorch_cpu", "-lc10"]
    steps = (  # what torch.utils.cpp_extension does
        [*toolchain.compiler(), *flags, "-c", "override.cpp", "-o", "override.o"],
        [*toolchain.compiler(), "-shared", "override.o", "-o", "override.so", *libraries],
    )
    for step in steps:
        toolchain.run([toolchain.Step(step, "the example", tmp_path)], 1, lambda done: None)
    run_python(EXAMPLE, str(tmp_path / "override.so"))
