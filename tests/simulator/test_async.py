"""Asynchronous streams: programs that synchronise as they must are right, and those that do not really go wrong."""

import copy
import signal
import threading
import time

import pytest
import torch
import torch_musa
from torch import nn

import torchada.simulator

CORE = torch_musa._MUSAC
MUSA = torch.device("musa")
LONG = 60_000_000  # nanoseconds a stream is kept busy


@pytest.fixture(autouse=True)
def queues():
    CORE._sim_set_async(True)
    yield
    CORE._sim_set_async(False)


def busy(cycles=LONG):
    CORE._musa_sleep(cycles)


# ---- races are real ------------------------------------------------------------------------------------


def test_the_host_does_not_wait_for_work():
    x = torch.zeros(4, device=MUSA)
    torch_musa.synchronize()
    start = time.monotonic()
    busy(300_000_000)
    x.add_(1)
    done = torch_musa.Event()
    done.record()
    assert not done.query() and not torch_musa.current_stream().query()
    assert time.monotonic() - start < 0.25
    assert x.tolist() == [1] * 4  # reading waits
    assert time.monotonic() - start >= 0.3 and done.query() and torch_musa.current_stream().query()


def test_pinned_memory_read_too_early():
    x, target = torch.ones(4, device=MUSA), torch.zeros(4).pin_memory()
    busy()
    target.copy_(x, non_blocking=True)
    early = target.tolist()
    torch_musa.synchronize()
    assert (early, target.tolist()) == ([0] * 4, [1] * 4)


def test_pinned_memory_written_too_early():
    x, source = torch.zeros(4, device=MUSA), torch.ones(4).pin_memory()
    pageable, y = torch.ones(4), torch.zeros(4, device=MUSA)
    busy()
    x.copy_(source, non_blocking=True)
    y.copy_(pageable, non_blocking=True)  # staged by the driver: may be changed at once
    source.fill_(7)
    pageable.fill_(7)
    assert (x.tolist(), y.tolist()) == ([7] * 4, [1] * 4)


def test_pinned_memory_is_converted_on_the_device():
    """So a value that a queued copy brings to the host first is there; a copy that blocks converts on the host."""
    x, host, y = torch.ones(4, device=MUSA), torch.zeros(4).pin_memory(), torch.zeros(4, device=MUSA, dtype=torch.long)
    busy()
    host.copy_(x, non_blocking=True)
    y.copy_(host, non_blocking=True)
    assert y.tolist() == [1] * 4


@pytest.mark.parametrize("wait", [False, True])
def test_streams_do_not_wait_for_each_other_by_themselves(wait):
    x, side = torch.zeros(4, device=MUSA), torch_musa.Stream()
    x + 1  # the first call of an operator takes its time
    torch_musa.synchronize()
    with torch_musa.stream(side):
        busy(5 * LONG)
        x.fill_(1)
    if wait:
        torch_musa.current_stream().wait_stream(side)
    y = x + 1
    assert y.tolist() == [2 if wait else 1] * 4
    torch_musa.synchronize()


@pytest.mark.parametrize("recorded", [False, True])
def test_memory_another_stream_still_reads(recorded):
    side = torch_musa.Stream()
    x = torch.ones(1024, device=MUSA)
    torch_musa.synchronize()
    with torch_musa.stream(side):
        busy()
        y = x * 2
    if recorded:
        x.record_stream(side)
    place = x.data_ptr()
    del x
    other = torch.full((1024,), 5.0, device=MUSA)
    assert (other.data_ptr() == place) is not recorded
    torch_musa.synchronize()
    assert y[0].item() == (2 if recorded else 10)


def test_pinned_memory_is_not_reused_while_a_copy_reads_it():
    x = torch.zeros(1 << 16, device=MUSA)
    busy()
    x.copy_(torch.ones(1 << 16).pin_memory(), non_blocking=True)  # the source is gone at once
    others = [torch.full((1 << 16,), 9.0).pin_memory() for _ in range(4)]
    assert x.sum().item() == 1 << 16 and len(others) == 4


# ---- right programs are right ----------------------------------------------------------------------------


def test_training():
    def run(device):
        torch.manual_seed(0)
        layers = nn.Conv2d(3, 4, 3, bias=False), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(64, 5)
        model = nn.Sequential(*layers).to(device)
        optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
        scaler = torch.amp.GradScaler("musa", enabled=device.type == "musa")
        losses, generator = [], torch.Generator().manual_seed(1)
        for _ in range(4):
            x = torch.randn(4, 3, 6, 6, generator=generator).pin_memory().to(device, non_blocking=True)
            y = torch.randint(5, (4,), generator=generator).to(device)
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(model(x), y)
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        return torch.stack(losses).cpu()

    torch.testing.assert_close(run(MUSA), run(torch.device("cpu")), rtol=1e-4, atol=1e-5)


def test_backward_runs_on_the_streams_of_the_forward_pass():
    side = torch_musa.Stream()
    w = torch.ones(4, device=MUSA, requires_grad=True)
    side.wait_stream(torch_musa.current_stream())
    with torch_musa.stream(side):
        busy()
        y = (w * 3).square()
    torch_musa.current_stream().wait_stream(side)
    y.sum().backward()
    assert w.grad.tolist() == [18] * 4


def test_threads():
    failures = []

    def work(number):
        try:
            with torch_musa.stream(torch_musa.Stream(device=number % 2)):
                for i in range(25):
                    x = torch.full((64,), float(i), device=f"musa:{number % 2}", requires_grad=True)
                    (x * x).sum().backward()
                    assert x.grad.sum().item() == 128 * i
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


def test_operators_that_cannot_be_queued_wait():
    x = torch.zeros(4, 4, device=MUSA)
    busy()
    x.add_(torch.eye(4, device=MUSA))
    assert x.nonzero().shape == (4, 2) and x[x > 0].tolist() == [1] * 4
    busy()
    x.mul_(2)
    assert x.to_sparse().values().tolist() == [2] * 4
    busy()
    x.add_(1)
    assert torch.ops.aten._aminmax(x)[1].item() == 3  # no Meta kernel
    out = torch.empty(0, device=MUSA)
    busy()
    torch.add(x, 1, out=out)
    assert out.shape == (4, 4) and out[0, 0].item() == 4
    busy()
    grown = out.clone().resize_(8, 4)
    assert grown[:4].tolist() == out.tolist()


def test_copies_between_devices():
    x = torch.ones(4, device="musa:0")
    busy()
    x.add_(1)
    y = x.to("musa:1")
    y.mul_(10)
    assert y.tolist() == [20] * 4


def test_numbers_are_those_of_synchronous_work():
    def draw():
        torch_musa.manual_seed(3)
        x = torch.randn(8, device=MUSA)
        return torch.cat([x, torch.rand(8, device=MUSA), nn.functional.dropout(x, 0.5)]).cpu()

    queued = draw()
    CORE._sim_set_async(False)
    assert torch.equal(queued, draw())


def test_memory_goes_back_only_when_the_device_is_idle():
    x = torch.zeros(1 << 20, device=MUSA)
    torch_musa.empty_cache()
    before = torch_musa.memory_reserved()
    busy()
    y = x + 1
    big = torch.ones(8 << 20, device=MUSA)
    z = (big * 2).sum()
    del big
    torch_musa.empty_cache()  # waits
    assert torch_musa.memory_reserved() <= before + (8 << 20)
    assert z.item() == 16 << 20 and y[0].item() == 1


# ---- errors ----------------------------------------------------------------------------------------------


def test_errors_come_later_and_stay():
    x = torch.ones(3, device=MUSA)
    x[torch.tensor([7], device=MUSA)]
    for call in (torch_musa.synchronize, lambda: x + 1, lambda: x.cpu()):
        with pytest.raises(RuntimeError, match=r"device-side assert triggered: index_Tensor_kernel: index 7 is out of"):
            call()
    (torch.ones(2, device="musa:1") + 1).tolist()  # another device works
    with pytest.raises(RuntimeError, match="must match the size"):  # what the host can see, it says at once
        torch.ones(2, device="musa:1") + torch.ones(3, device="musa:1")


@pytest.mark.parametrize("name", ["svd", "svdvals", "eigh", "eigvalsh", "eig"])
def test_failures_that_the_host_looks_for_come_at_once(name):
    decompose = getattr(torch.linalg, name)
    with pytest.raises(RuntimeError, match=r"non-finite|infs or NaNs|input matrix"):
        decompose(torch.full((3, 3), float("nan"), device=MUSA))
    assert (torch.ones(2, device=MUSA) + 1).tolist() == [2, 2]  # the device goes on


# ---- events ----------------------------------------------------------------------------------------------


def test_events_take_the_time_of_the_stream():
    start, end = torch_musa.Event(enable_timing=True), torch_musa.Event(enable_timing=True)
    start.record()
    busy()
    end.record()
    with pytest.raises(RuntimeError, match="must be completed before calculating elapsed time"):
        start.elapsed_time(end)
    syncs = torchada.simulator.counters()["host_syncs"]
    end.synchronize()
    assert torchada.simulator.counters()["host_syncs"] == syncs + 1
    assert LONG / 1e6 <= start.elapsed_time(end) < LONG / 1e6 + 5000
    side = torch_musa.Stream()
    busy()
    late = torch_musa.current_stream().record_event()
    side.wait_event(late)
    assert not side.query()
    side.synchronize()
    assert late.query()
    end.record()  # a second time: the last one counts
    end.synchronize()
    assert start.elapsed_time(end) > 2 * LONG / 1e6


# ---- processes -------------------------------------------------------------------------------------------

ENDINGS = {
    "work in flight": ("", 0),
    "exception": ("raise ValueError", 1),
    "exit in a thread": ("import threading; threading.Thread(target=lambda: (x + 1).sum()).start()", 0),
    "kept in a cycle": ("class C: pass\nc = C(); c.c = c; c.x = x; c.g = g", 0),
    "module teardown": ("import sys; sys.modules['keep'] = (x, g); del torch", 0),
}


@pytest.mark.parametrize("name", ENDINGS)
def test_the_process_ends_well(run_python, name):
    ending, code = ENDINGS[name]
    head = """
import torchada.simulator; torchada.simulator.install()
import torch, torch_musa
x = torch.ones(1000, device="musa", requires_grad=True)
g = torch_musa.MUSAGraph()
with torch_musa.graph(g):
    y = x.detach() * 2
torch_musa._sleep(100_000_000)
(x * 2).sum().backward()
g.replay()
target = torch.empty(1000).pin_memory(); target.copy_(y, non_blocking=True)
"""
    done = run_python(head + ending, env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "1"}, ok=False)
    assert done.returncode == code and (code or not done.stderr), done.stderr


def test_switches_and_a_fork(run_python):
    code = """
    import torchada.simulator; torchada.simulator.install()
    import os, torch, torch_musa
    print(torch_musa._MUSAC._sim_is_async())
    x = torch.ones(4, device="musa")
    torch_musa._sleep(50_000_000)
    y = x + 1
    pid = os.fork()
    if pid == 0:
        try:
            x + 1
        except RuntimeError as error:
            print("forked subprocess" in str(error), flush=True)
        raise SystemExit
    assert os.waitpid(pid, 0)[1] == 0
    print(y.tolist())
    """
    text = run_python(code, env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "1"}).stdout
    assert text.split("\n")[:3] == ["True", "True", "[2.0, 2.0, 2.0, 2.0]"]
    blocking = {"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "1", "MUSA_LAUNCH_BLOCKING": "1"}
    assert run_python(code, env=blocking).stdout.startswith("False")
    wrong = run_python(
        "import torchada.simulator as s; s.install(); import torch_musa",
        ok=False,
        env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "yes"},
    )
    assert wrong.returncode != 0 and "TORCHADA_SIM_ASYNC='yes' is not a switch; use 0 or 1" in wrong.stderr


def test_an_error_nobody_saw_is_said_at_the_end(run_python):
    code = """
    import torchada.simulator; torchada.simulator.install()
    import torch, torch_musa
    torch.ones(3, device="musa")[torch.tensor([7], device="musa")]
    """
    done = run_python(code, env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "1"}, ok=False)
    assert "ends with an error that no call reported" in done.stderr and "index 7 is out of bounds" in done.stderr


def test_deep_copies_and_clones_keep_their_order():
    x = torch.zeros(16, device=MUSA)
    busy()
    for _ in range(20):
        x = copy.deepcopy(x) + 1
    assert x.tolist() == [20] * 16


# ---- results are those of the kernels that compute -------------------------------------------------------


def train_and_test(build, make_input):
    """Numbers of a training step and of the model in evaluation, with its gradients."""
    torch.manual_seed(0)
    model = build()
    numbers = []
    for mode in (True, False):
        model.train(mode)
        loss = model(make_input()).float().square().sum()
        loss.backward()
        numbers += [loss.item(), *(p.grad.float().cpu() for p in model.parameters())]
    return numbers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "build",
    [
        lambda: nn.BatchNorm1d(6),
        lambda: nn.LayerNorm(6),
        lambda: nn.GroupNorm(2, 6),
        lambda: nn.Sequential(nn.Embedding(8, 6), nn.LayerNorm(6)),
        lambda: nn.EmbeddingBag(8, 6, mode="sum"),
        lambda: nn.EmbeddingBag(8, 6, mode="max"),
    ],
    ids=["batch", "layer", "group", "embedding", "bag-sum", "bag-max"],
)
def test_statistics_that_meta_kernels_tell_differently(build, dtype):
    """Meta kernels describe CUDA's results, and the CPU's kernels expect their own in the backward pass."""
    indices = isinstance(build(), nn.EmbeddingBag | nn.Sequential)
    data = torch.arange(24).view(4, 6) % 8 if indices else torch.randn(4, 6).to(dtype)
    results = []
    for on in (True, False):
        CORE._sim_set_async(on)
        results.append(train_and_test(lambda: build().to(MUSA, dtype), lambda: data.to(MUSA)))
    torch.testing.assert_close(*results)


def test_numbers_stay_numbers():
    """A Python number does not decide the type a queued operator computes in, nor that of its result."""
    x = torch.tensor(0.1, device=MUSA)
    y = (x * 0.1, x + 0.1, torch.tensor(200, dtype=torch.uint8, device=MUSA) + 100)
    assert [t.dtype for t in y] == [torch.float32, torch.float32, torch.uint8]
    host = torch.tensor(0.1)
    assert [t.item() for t in y] == [(host * 0.1).item(), (host + 0.1).item(), 44]


def test_interrupts_while_the_host_computes_shapes():
    """A Meta kernel in Python is a place where Ctrl-C arrives: it must reach the program."""

    def interrupt(*_):
        raise KeyboardInterrupt

    x = torch.ones(2, 2, device=MUSA)
    before = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(10):
            end = time.monotonic() + 2
            with pytest.raises(KeyboardInterrupt):
                signal.setitimer(signal.ITIMER_REAL, 0.02)
                while time.monotonic() < end:
                    torch.einsum("ij,jk->ik", x, x)
            torch_musa.synchronize()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    assert (x @ x).tolist() == [[2, 2], [2, 2]]
