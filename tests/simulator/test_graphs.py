"""Graphs on the simulated device: what is captured, what a replay does, what cannot be captured."""

import copy
import ctypes
import gc
import random
import threading

import pytest
import torch
import torch_musa
from torch import nn

import torchada.simulator

CORE = torch_musa._MUSAC
MUSA = torch.device("musa")
REFUSED = "operation not permitted when stream is capturing"
FAILED = "operation failed due to a previous error during capture"


@pytest.fixture(params=[False, True], ids=["sync", "async"], autouse=True)
def queues(request):
    CORE._sim_set_async(request.param)
    yield
    CORE._sim_set_async(False)
    assert not torch_musa.is_current_stream_capturing()


def captured(work, **options):
    graph = torch_musa.MUSAGraph()
    with torch_musa.graph(graph, **options):
        result = work()
    return graph, result


def test_nothing_runs_before_the_replay():
    x = torch.ones(4, device=MUSA)
    captured(lambda: x + 1)  # torchada tries operators before the first capture of a process
    launches = torchada.simulator.counters()
    graph, y = captured(lambda: x.add_(1).mul(2))
    assert torchada.simulator.counters()["kernel_launches"] == launches["kernel_launches"]
    assert x.tolist() == [1] * 4
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([2] * 4, [4] * 4)
    x.fill_(10)
    graph.replay()
    graph.replay()
    assert (x.tolist(), y.tolist()) == ([12] * 4, [24] * 4)
    assert torchada.simulator.counters()["graph_launches"] == launches["graph_launches"] + 3


OPERATORS = {
    "views": lambda x: x.view(2, 8).t().contiguous()[1:, 0].unsqueeze(0),
    "out": lambda x: torch.add(x, 1, out=torch.empty(0, device=MUSA)),
    "reduction": lambda x: (x.sum(0), x.max(1)[1], x.std()),
    "sort": lambda x: x.sort(dim=1, descending=True),
    "cat": lambda x: torch.cat([x, x * 2], 1).split(3, 1),
    "index": lambda x: x[x[0].long().clamp(0, 3)],
    "masked_fill": lambda x: x.masked_fill(x > 7, 0),
    "put": lambda x: x.clone().index_add_(0, x[0, :1].long().clamp(0, 3), x[:1]),
    "foreach": lambda x: torch._foreach_mul([x, x + 1], 2.0),
    "matmul": lambda x: (x @ x.t(), x.half() @ x.half().t()),
    "linalg": lambda x: torch.linalg.inv_ex(x + 50 * torch.eye(4, device=MUSA))[0],
    "no_meta_kernel": lambda x: torch.ops.aten._aminmax(x),
    "pool": lambda x: nn.functional.max_pool2d(x[None, None], 2),
    "half": lambda x: x.half().mul(0.1).float(),
    "complex": lambda x: torch.complex(x, x).conj().mul(2j).real,
    "attention": lambda x: nn.functional.scaled_dot_product_attention(x[None, None], x[None, None], x[None, None]),
    "factories": lambda x: torch.arange(4, device=MUSA) + torch.full((4,), 3, device=MUSA),
}


@pytest.mark.parametrize("name", OPERATORS)
def test_captured_operators_give_what_they_give_outside(name):
    work = OPERATORS[name]
    x = torch.arange(16.0, device=MUSA).reshape(4, 4)
    graph, result = captured(lambda: work(x))
    for value in (x.clone(), x.flip(0) + 0.5):
        x.copy_(value)
        graph.replay()
        torch.testing.assert_close(result, work(x))


def test_random_numbers_move_on_with_every_replay():
    def work():
        noise = torch.randn(8, device=MUSA)
        return noise, torch.rand(8, device=MUSA), nn.functional.dropout(noise + 9, 0.5)

    graph, result = captured(work)
    torch_musa.manual_seed(5)
    expected = [copy.deepcopy(work()) for _ in range(3)]
    state = torch_musa.get_rng_state()
    torch_musa.manual_seed(5)
    for values in expected:
        graph.replay()
        assert all(torch.equal(a, b) for a, b in zip(result, values, strict=True))
    assert torch.equal(torch_musa.get_rng_state(), state)


def test_generators_in_a_capture():
    own = torch.Generator(device=MUSA)
    with pytest.raises(RuntimeError, match="unexpected MUSA generator used during capture"):
        captured(lambda: torch.randn(2, device=MUSA, generator=own))
    with pytest.raises(RuntimeError, match="set_current_seed during MUSA graph capture"):
        captured(lambda: torch_musa.manual_seed(1))


def train(model, optimizer, x, y):
    optimizer.zero_grad(set_to_none=True)
    loss = nn.functional.cross_entropy(model(x), y)
    loss.backward()  # on autograd's own thread
    optimizer.step()
    return loss


def test_a_whole_training_step():
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Conv2d(1, 2, 3, bias=False), nn.BatchNorm2d(2), nn.ReLU(), nn.Flatten(), nn.Linear(32, 3)
    ).to(MUSA)
    twin = copy.deepcopy(model)
    optimizers = [torch.optim.Adam(m.parameters(), lr=0.05, capturable=True) for m in (model, twin)]
    x, y = torch.randn(4, 1, 6, 6, device=MUSA), torch.tensor([0, 1, 2, 0], device=MUSA)
    side = torch_musa.Stream()
    side.wait_stream(torch_musa.current_stream())
    with torch_musa.stream(side):
        train(model, optimizers[0], x, y)
    torch_musa.current_stream().wait_stream(side)
    train(twin, optimizers[1], x, y)
    graph, loss = captured(lambda: train(model, optimizers[0], x, y))
    for _ in range(4):
        graph.replay()
        torch.testing.assert_close(loss.detach(), train(twin, optimizers[1], x, y).detach())
    for a, b in zip(model.state_dict().values(), twin.state_dict().values(), strict=True):
        torch.testing.assert_close(a, b)


def test_make_graphed_callables():
    torch.manual_seed(2)
    model = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(MUSA)
    twin = copy.deepcopy(model)
    graphed = torch_musa.make_graphed_callables(model, (torch.randn(3, 4, device=MUSA, requires_grad=True),))
    for _ in range(3):
        x = torch.randn(3, 4, device=MUSA)
        inputs = x.clone().requires_grad_(), x.clone().requires_grad_()
        for one, given in zip((graphed, twin), inputs, strict=True):
            one(given).square().sum().backward()
        torch.testing.assert_close(inputs[0].grad, inputs[1].grad)
        for a, b in zip(graphed.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a.grad, b.grad)
            a.grad = b.grad = None
    graphed.eval()
    assert graphed(torch.ones(7, 4, device=MUSA)).shape == (7, 2)  # another mode: not the graph
    with pytest.raises(TypeError, match="must contain only Tensors"):
        torch_musa.make_graphed_callables(twin, (3,))
    two = torch_musa.make_graphed_callables(
        (lambda x: x * 2, lambda x: x + 1), ((torch.ones(2, device=MUSA),), (torch.ones(2, device=MUSA),))
    )
    assert two[1](two[0](torch.full((2,), 5.0, device=MUSA))).tolist() == [11, 11]


def test_a_size_that_is_told_need_not_be_looked_up():
    """`output_size=` is there for captures: with it no size depends on values."""
    x, counts = X.to(MUSA), torch.tensor([1, 2, 0, 1], device=MUSA)
    graph, repeated = captured(lambda: x.repeat_interleave(counts, output_size=4))
    graph.replay()
    assert repeated.tolist() == [0, 1, 1, 3]
    counts.copy_(torch.tensor([0, 0, 3, 1]))
    graph.replay()
    assert repeated.tolist() == [2, 2, 2, 3]
    torchada.simulator.reset_counters()
    torch.repeat_interleave(counts, output_size=4)
    assert torchada.simulator.counters()["host_syncs"] == 0
    torch.repeat_interleave(counts)
    assert torchada.simulator.counters()["host_syncs"] > 0


# ---- what cannot be captured ---------------------------------------------------------------------------

X = torch.arange(4.0)
ILLEGAL = {
    "item": lambda x: x.sum().item(),
    "cpu": lambda x: x.cpu(),
    "pageable": lambda x: x.copy_(torch.ones(4), non_blocking=True),
    "pinned_blocking": lambda x: x.copy_(torch.ones(4).pin_memory()),
    "to_pageable": lambda x: torch.empty(4).copy_(x, non_blocking=True),
    "nonzero": lambda x: x.nonzero(),
    "mask": lambda x: x[x > 1],
    "repeats": lambda x: x.repeat_interleave(x.long()),
    "synchronize": lambda x: torch_musa.synchronize(),
    "stream_synchronize": lambda x: torch_musa.current_stream().synchronize(),
    "stream_query": lambda x: torch_musa.current_stream().query(),
    "event_query": lambda x: EVENT.query(),
    "nested": lambda x: captured(lambda: x + 1),
    "sparse": lambda x: x.to_sparse(),
}
EVENT = torch_musa.Event()
EVENT.record()


@pytest.mark.parametrize("name", ILLEGAL)
def test_what_cannot_be_captured_is_an_error_and_leaves_nothing_behind(name):
    x = X.to(MUSA)
    graph = torch_musa.MUSAGraph()
    before = torch_musa.current_stream()
    with pytest.raises(RuntimeError, match=FAILED) as caught, torch_musa.graph(graph):
        x.add_(1)
        ILLEGAL[name](x)
    causes, error = [], caught.value
    while error.__context__ is not None:
        error = error.__context__
        causes.append(str(error))
    assert any(REFUSED in cause for cause in causes), causes
    assert torch_musa.current_stream() == before and not torch_musa.is_current_stream_capturing()
    assert x.tolist() == X.tolist()  # nothing ran
    torch_musa.synchronize()
    graph, y = captured(lambda: x * 2)  # the device is as good as before
    graph.replay()
    assert y.tolist() == [0, 2, 4, 6]


def test_an_exception_of_the_program_ends_the_capture():
    x = torch.ones(2, device=MUSA)
    graph = torch_musa.MUSAGraph()
    with pytest.raises(KeyError), torch_musa.graph(graph):
        x.add_(1)
        raise KeyError
    assert x.tolist() == [1, 1]
    graph.replay()
    assert x.tolist() == [2, 2]


def test_wrong_use():
    graph = torch_musa.MUSAGraph()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.replay()
    with pytest.raises(RuntimeError, match="without a preceding successful capture"):
        graph.pool()
    with pytest.raises(RuntimeError, match="cannot be performed in the present state"):
        graph.capture_end()
    with pytest.raises(RuntimeError, match="non-default stream"):
        graph.capture_begin()
    with pytest.raises(RuntimeError, match="Unknown capture error mode"), torch_musa.stream(torch_musa.Stream()):
        graph.capture_begin(capture_error_mode="loose")
    x = torch.ones(2, device=MUSA)
    with torch_musa.graph(graph):
        x.add_(1)
    with pytest.raises(RuntimeError, match="already owns a captured graph"), torch_musa.graph(graph):
        pass
    graph.reset()
    with torch_musa.graph(graph):  # may be used again
        x.add_(5)
    graph.replay()
    assert x.tolist() == [6, 6]


def test_streams_join_a_capture_through_events():
    x, stream = torch.ones(4, device=MUSA), torch_musa.Stream()

    def fork(join):
        y = x + 1
        stream.wait_stream(torch_musa.current_stream())
        with torch_musa.stream(stream):
            assert torch_musa.is_current_stream_capturing()
            z = y * 10
        if join:
            torch_musa.current_stream().wait_stream(stream)
        return y + z if join else z

    graph, result = captured(lambda: fork(True))
    graph.replay()
    assert result.tolist() == [22] * 4
    with pytest.raises(RuntimeError, match=r"unjoined work \(mul_Tensor_kernel"):
        captured(lambda: fork(False))
    assert not stream.query() or stream.query()  # out of the capture
    outside = torch_musa.Event()
    outside.record(stream)
    with pytest.raises(RuntimeError, match="dependency created on uncaptured work"):
        graph = torch_musa.MUSAGraph()
        with torch_musa.stream(torch_musa.Stream()):
            graph.capture_begin()
            try:
                outside.wait()
            finally:
                graph.reset()
    inside = torch_musa.Event()
    captured(lambda: (x.add(1), inside.record()))
    for use in (inside.wait, inside.query, inside.synchronize, inside.wait):
        with pytest.raises(RuntimeError, match="event last recorded in a capturing stream"):
            use()  # or a program that polls would never end
    inside.record()
    inside.synchronize()
    assert inside.query()


def test_other_threads_and_streams_go_on_during_a_capture():
    x = torch.ones(4, device=MUSA)
    seen = []

    def elsewhere():
        seen.append(((x + 1).sum().item(), torch_musa.is_current_stream_capturing()))

    def work():
        y = x * 3
        thread = threading.Thread(target=elsewhere)
        thread.start()
        thread.join()
        return y

    graph, y = captured(work, capture_error_mode="thread_local")
    graph.replay()
    assert seen == [(8.0, False)] and y.tolist() == [3] * 4


def test_devices_of_other_threads_are_not_captured():
    graph, pair = captured(lambda: torch.ones(2, device="musa:0") + 1)
    graph.replay()
    assert pair.tolist() == [2, 2] and (torch.ones(2, device="musa:1") * 2).tolist() == [2, 2]


def test_pinned_copies_are_captured():
    source, target = torch.ones(4).pin_memory(), torch.empty(4).pin_memory()
    x = torch.zeros(4, device=MUSA)

    def work():
        x.copy_(source, non_blocking=True)
        target.copy_(x * 2, non_blocking=True)

    graph, _ = captured(work)
    for value in (3.0, 4.0):
        source.fill_(value)
        graph.replay()
        torch_musa.synchronize()
        assert target.tolist() == [2 * value] * 4


# ---- memory --------------------------------------------------------------------------------------------


def test_graphs_share_a_pool():
    pool = torch_musa.graph_pool_handle()
    x = torch.ones(1 << 20, device=MUSA)
    torch_musa.empty_cache()
    first, a = captured(lambda: x + 1, pool=pool)
    assert first.pool() == pool
    reserved = torch_musa.memory_reserved()
    del a
    second, b = captured(lambda: x * 3, pool=first.pool())
    assert torch_musa.memory_reserved() == reserved  # in the place of a
    second.replay()
    assert b[0].item() == 3
    first.replay()
    assert b[0].item() == 2  # who shares memory must take turns
    assert (torch.zeros(1 << 20, device=MUSA) + 7)[0].item() == 7 and b[0].item() == 2  # others have their own
    del first, second, b
    gc.collect()
    torch_musa.empty_cache()
    assert torch_musa.memory_reserved() < reserved


def test_memory_of_a_graph_stays_its_own():
    x = torch.ones(1000, device=MUSA)
    graph, y = captured(lambda: (x + 1) * 2)  # the sum is free after the capture, but the graph writes to it
    others = [torch.zeros(1000, device=MUSA) for _ in range(50)]
    graph.replay()
    assert y[0].item() == 4 and all(other.count_nonzero().item() == 0 for other in others)


# ---- executables ---------------------------------------------------------------------------------------


def test_deletion_while_running():
    x = torch.zeros(4, device=MUSA)
    graph, y = captured(lambda: (CORE._musa_sleep(30_000_000), x.add_(1))[1])
    graph.replay()
    graph.replay()
    del graph
    gc.collect()
    assert y.tolist() == [2] * 4


def test_reinstantiation_and_the_functions_of_the_runtime():
    x = torch.zeros(2, device=MUSA)
    graph, _ = captured(lambda: x.add_(1))
    alive = torchada.simulator.counters()["graph_executables"]
    graph.reinstantiate_graph()
    torch_musa.update_musa_graph_with_profile()
    assert torchada.simulator.counters()["graph_executables"] == alive
    graph.replay()

    runtime = ctypes.CDLL(CORE.__file__)
    template, executable = graph._sim_handles()
    assert runtime.musaGraphExecDestroy(ctypes.c_void_p(executable)) == 0
    assert runtime.musaGraphExecDestroy(ctypes.c_void_p(executable)) == 400
    assert torchada.simulator.counters()["graph_executables"] == alive - 1
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        graph.replay()
    graph.reinstantiate_graph()  # from the template: nothing is captured again
    graph.replay()
    assert x.tolist() == [2, 2]

    own = ctypes.c_void_p()
    assert runtime.musaGraphInstantiate(ctypes.byref(own), ctypes.c_void_p(template), ctypes.c_ulonglong(0)) == 0
    assert runtime.musaGraphLaunch(own, ctypes.c_void_p(torch_musa.current_stream().musa_stream)) == 0
    assert x.tolist() == [3, 3]
    assert runtime.musaGraphExecDestroy(own) == 0 and runtime.musaGraphLaunch(own, None) == 400


def test_replay_in_any_order_from_any_stream():
    x = torch.zeros(64, device=MUSA)
    pool = torch_musa.graph_pool_handle()
    graphs = [torch_musa.MUSAGraph() for _ in range(64)]
    with torch_musa.stream(torch_musa.Stream()):
        for i, graph in enumerate(graphs):
            graph.capture_begin(pool=pool)
            x[i].add_(i)
            graph.capture_end()
    order = [random.randrange(64) for _ in range(300)]
    streams = [torch_musa.Stream() for _ in range(3)]
    for stream in streams:
        stream.wait_stream(torch_musa.current_stream())
    for i in order:
        with torch_musa.stream(streams[i % 3]):
            graphs[i].replay()
    torch_musa.synchronize()
    assert x.tolist() == [i * order.count(i) for i in range(64)]


BOUND = """
import torchada.simulator; torchada.simulator.install()
import random, sys, torch, torch_musa
x, graphs, pool = torch.zeros(5000, device="musa"), [], torch_musa.graph_pool_handle()
stream = torch_musa.Stream()
try:
    with torch_musa.stream(stream):
        for i in range(5000):
            graph = torch_musa.MUSAGraph()
            graph.capture_begin(pool=pool)
            x[i].add_(1)
            graph.capture_end()
            graphs.append(graph)
except RuntimeError as error:
    print("error:", error)
    with torch_musa.stream(stream):
        stay = graphs.pop()          # the driver's place for another one
        stay.reset()
        graph.reinstantiate_graph()  # the template outlived the refusal
        graph.replay()
    torch_musa.synchronize()
    print(int(x.sum().item()))
random.shuffle(graphs)
for graph in graphs:
    graph.replay()
torch_musa.synchronize()
print(len(graphs), int(x.sum().item()), torchada.simulator.counters()["graph_executables"])
"""


def test_the_bound_on_executables(run_python, queues):
    if CORE._sim_is_async():
        return  # a process of its own either way
    at_bound = run_python(BOUND, env={"TORCHADA": "0"}).stdout.splitlines()
    assert "MUSA error: out of memory (2048 graph executables are alive" in at_bound[0]
    assert at_bound[1:] == ["1", "2047 2048 2047"]
    above = run_python(BOUND, env={"TORCHADA": "0", "TORCHADA_SIM_GRAPH_EXECS": "5000"}).stdout
    assert above.split() == ["5000", "5000", "5000"]


def test_debug_dump(tmp_path):
    x = torch.ones(2, device=MUSA)
    graph = torch_musa.MUSAGraph()
    with torch_musa.graph(graph):
        (x + 1).mul_(2)
    with pytest.warns(UserWarning, match="debug not enabled"):
        graph.debug_dump(str(tmp_path / "graph.dot"))
    graph.enable_debug_mode()
    graph.debug_dump(str(tmp_path / "graph.dot"))
    text = (tmp_path / "graph.dot").read_text()
    assert text.startswith("digraph") and '"graph_1_node_0" -> "graph_1_node_1"' in text
    assert "add_Tensor_kernel" in text and "mul__Tensor_kernel" in text
    with pytest.raises(RuntimeError, match="cannot write"):
        graph.debug_dump(str(tmp_path / "missing" / "graph.dot"))
    with pytest.warns(UserWarning, match="Graph is empty"):
        captured(lambda: None)


@pytest.mark.parametrize("train", [True, False])
def test_norms_and_bags_in_a_graph(train):
    """Their Meta kernels tell other statistics than the CPU's kernels give."""
    model = (
        nn.Sequential(nn.EmbeddingBag(8, 6), nn.LayerNorm(6), nn.BatchNorm1d(6)).to(MUSA, torch.bfloat16).train(train)
    )
    x = torch.arange(24, device=MUSA).view(4, 6) % 8
    parameters = list(model.parameters())

    def step():
        y = model(x)
        return [y.detach(), *torch.autograd.grad(y.sum(), parameters)]

    want = step()
    graph, got = captured(step)
    graph.replay()
    torch.testing.assert_close(got, want)
