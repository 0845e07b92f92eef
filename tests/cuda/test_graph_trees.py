"""torch.compile with graphs: mode="reduce-overhead", "max-autotune" and backend="cudagraphs", as on CUDA."""

import copy
import gc
import importlib.util
from contextlib import contextmanager

import pytest
import torch
from torch._dynamo.utils import counters

import torchada
from torchada import simulator

BACKEND = {"backend": "cudagraphs"}
INDUCTOR = {"mode": "reduce-overhead"}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    counters.clear()
    yield
    torch._dynamo.reset()
    gc.collect()


@contextmanager
def replays(least):
    """At least so many graph launches, and nothing that was not captured."""
    before = simulator.counters()["graph_launches"]
    yield
    assert simulator.counters()["graph_launches"] - before >= least
    assert counters["inductor"]["cudagraph_skips"] == 0


def train_and_compare(options, steps=4):
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 1)).cuda()
    twin = copy.deepcopy(model)
    compiled = torch.compile(model, **options)
    for _ in range(steps):
        torch.compiler.cudagraph_mark_step_begin()
        x = torch.randn(16, 4, device="cuda")
        for run, module in ((compiled, model), (twin, twin)):
            run(x).square().mean().backward()
            with torch.no_grad():
                for parameter in module.parameters():
                    parameter -= 0.1 * parameter.grad
                    parameter.grad = None
    for a, b in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(a, b)


def test_cudagraphs_backend():
    with replays(4):
        train_and_compare(BACKEND)


def test_several_functions_and_steps():
    """Going from one compiled function to another, with outputs that are alive and such that died."""
    plain = (lambda x: x.sin() + 1, lambda x: x.cos() * 2, lambda x: x.tanh() - 3)
    functions = [torch.compile(function, **BACKEND) for function in plain]
    with replays(10):
        for step in range(6):
            torch.compiler.cudagraph_mark_step_begin()
            x = y = torch.randn(8, device="cuda")
            for function, compiled in zip(plain, functions, strict=True):
                given = x if step % 2 else y
                y = compiled(given)
                torch.testing.assert_close(y, function(given))


def test_a_model_and_functions_in_one_process():
    """Another compiled function after a training step starts from the memory that the step left."""
    with replays(8):
        first = torch.compile(lambda x, w: torch.relu(x @ w) + 1, **BACKEND)
        x, w = torch.randn(2, 4, 4, device="cuda")
        for _ in range(4):
            torch.testing.assert_close(first(x, w), torch.relu(x @ w) + 1)
        train_and_compare(BACKEND)
        for _ in range(3):
            torch.testing.assert_close(first(x, w), torch.relu(x @ w) + 1)


def test_mutated_inputs_are_skipped_as_on_cuda():
    def add(x):
        x.add_(1)
        return x * 2

    compiled, x = torch.compile(add, **BACKEND), torch.zeros(4, device="cuda")
    for i in range(1, 5):
        assert compiled(x).tolist() == [2 * i] * 4 and x.tolist() == [i] * 4


def test_what_cannot_be_captured_is_counted():
    compiled = torch.compile(lambda x, y: (x * 2, y + 1), **BACKEND)
    x, y = torch.ones(2, device="cuda"), torch.ones(2)
    for _ in range(3):
        assert [z.tolist() for z in compiled(x, y)] == [[2, 2], [2, 2]]
    assert counters["inductor"]["cudagraph_skips"] == 1


OVERWRITTEN = "output of CUDAGraphs that has been overwritten by a subsequent run"


def test_an_output_that_was_overwritten():
    """Whoever reads it, or a view of it, is told, as on CUDA: while graphs are made, not when they are replayed."""
    compiled, x = torch.compile(lambda x: x * 2, **BACKEND), torch.ones(3, device="cuda")
    outputs = []
    for _ in range(3):
        torch.compiler.cudagraph_mark_step_begin()
        outputs.append((y := compiled(x), y[1:], y.clone()))
    for y, view, kept in outputs[:2]:
        for read in (y.tolist, y.sum, lambda y=y: y + 1, view.tolist, lambda view=view: view.add_(1)):
            with pytest.raises(RuntimeError, match=OVERWRITTEN):
                read()
        assert kept.tolist() == [2] * 3 and y.shape == (3,)
    assert outputs[2][0].tolist() == [2] * 3 and outputs[2][1].tolist() == [2] * 2


def test_a_view_of_an_overwritten_output_without_a_compiler(run_python, tmp_path):
    code = """
    import torchada, torch, warnings
    compiled = torch.compile(lambda x: x * 2, backend="cudagraphs")
    x = torch.ones(3, device="cuda")
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for value in range(5):
            torch.compiler.cudagraph_mark_step_begin()
            view = compiled(x)[1:]
    print(sum("overwritten raises no error " in str(w.message) and "Clone" in str(w.message) for w in caught))
    """
    env = {"TORCH_EXTENSIONS_DIR": str(tmp_path), "CXX": "no-such-compiler", "TORCHADA_SIM_TORCH_MUSA": "2.7.1"}
    assert run_python(code, env=env).stdout == "1\n"
    done = run_python(code, env=env | {"TORCHADA_STRICT": "1"}, ok=False)
    assert done.returncode == 1 and "no-such-compiler" in done.stderr


def test_reset_ends_the_cache_of_tensors():
    compiled, x = torch.compile(lambda x: x * 2, **BACKEND), torch.ones(3, device="cuda")
    for _ in range(3):
        compiled(x)
    from torch._inductor import cudagraph_trees

    assert cudagraph_trees._set_cached_tensors_enabled is torch._C._set_cached_tensors_enabled
    executables = simulator.counters()["graph_executables"]
    torch._dynamo.reset()
    gc.collect()
    assert simulator.counters()["graph_executables"] < executables


def test_segments_without_their_pool():
    from torch._inductor import cudagraph_trees

    with pytest.raises(RuntimeError, match="do not name the pool of a segment"):
        cudagraph_trees.get_cudagraph_segments((0, 1))


def test_checks_of_every_replay_are_refused():
    compiled, x = torch.compile(lambda x: x * 2, **BACKEND), torch.ones(2, device="cuda")
    with torch._inductor.config.patch("triton.fast_path_cudagraph_asserts", True):
        compiled(x)
        with pytest.raises(torchada.NotOnMusa, match="slow_path_cudagraph_asserts"):
            compiled(x)


def test_cond_in_a_graph():
    def choose(x):
        return torch.cond(x.sum() > 0, lambda x: x + 1, lambda x: x - 1, (x,))

    compiled = torch.compile(choose, **BACKEND)
    if importlib.util.find_spec("torch._higher_order_ops.cudagraph_conditional_nodes") is None:
        assert compiled(torch.ones(2, device="cuda")).tolist() == [2, 2]
        try:  # this torch leaves it out of the graph ...
            assert compiled(torch.ones(2, device="cuda")).tolist() == [2, 2]
        except RuntimeError as error:  # ... or, torch 2.7, asks for the value while it captures, as on CUDA
            assert "during capture" in str(error)
        return
    with pytest.raises(torchada.NotOnMusa, match=r"torch\.cond\(\) in a CUDA graph"):
        compiled(torch.ones(2, device="cuda"))


def test_without_a_caching_allocator(monkeypatch):
    assert torch._C._cuda_cudaCachingAllocator_is_enabled() is True
    monkeypatch.setenv("PYTORCH_NO_MUSA_MEMORY_CACHING", "1")
    assert torch._C._cuda_cudaCachingAllocator_is_enabled() is False


def test_reduce_overhead():
    compiled = torch.compile(lambda x, w: torch.relu(x @ w) + 1, **INDUCTOR)
    x, w = torch.randn(2, 4, 4, device="cuda")
    with replays(3):
        for _ in range(5):
            x.normal_()
            torch.testing.assert_close(compiled(x, w), torch.relu(x @ w) + 1)
        train_and_compare(INDUCTOR)


def test_max_autotune():
    compiled = torch.compile(lambda x: (x * 2).relu() + 1, mode="max-autotune")
    x = torch.randn(8, device="cuda")
    with replays(2):
        for _ in range(4):
            torch.testing.assert_close(compiled(x), (x * 2).relu() + 1)


def test_dynamic_shapes():
    compiled = torch.compile(lambda x: (x * 2).sum(0), dynamic=True, **INDUCTOR)
    with replays(3):
        for n in (3, 5, 3, 5, 3, 5):
            x = torch.randn(n, 4, device="cuda")
            torch.testing.assert_close(compiled(x), (x * 2).sum(0))
