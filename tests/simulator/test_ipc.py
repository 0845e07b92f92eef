"""Device memory shared between real processes: queues, ownership, errors."""

import json
import os
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler
from pathlib import Path

import pytest
import torch
import torch_musa

CORE = torch_musa._MUSAC
ROOT = Path(__file__).resolve().parents[2]

# A program of its own, because spawned processes import their main module.
PROGRAM = """
import gc, json, sys
import torchada.simulator
torchada.simulator.install()
import torch, torch_musa
import torch.multiprocessing as mp
from multiprocessing.reduction import ForkingPickler

def reader(inbox, outbox):
    x = inbox.get(timeout=100)
    outbox.put([float(x.sum()), str(x.device), x.storage_offset(), list(x.stride()), x.is_musa])
    inbox.get(timeout=100)
    seen = float(x[0, 0])
    x[0, 1] = 77
    torch_musa.synchronize()
    try:
        ForkingPickler.dumps(x)
        error = ""
    except RuntimeError as caught:
        error = str(caught)
    again = inbox.get(timeout=100)  # the same storage a second time
    outbox.put([seen, error, again.untyped_storage().data_ptr() == x.untyped_storage().data_ptr(),
                torch_musa.memory_allocated(), x.untyped_storage().resizable()])
    inbox.get(timeout=100)
    del x, again
    gc.collect()
    outbox.put("gone")

def trainer(model, data, outbox):
    for p in model.parameters():
        p.data.add_(1)
    torch_musa.synchronize()
    outbox.put([type(p).__name__ + str(p.requires_grad) for p in model.parameters()] + [float(data.sum())])

def sharing(method):
    ctx = mp.get_context(method)
    inbox, outbox = ctx.Queue(), ctx.Queue()
    child = ctx.Process(target=reader, args=(inbox, outbox))
    child.start()
    start = torch_musa.memory_allocated(1)
    base = torch.arange(20.0, device="musa:1").reshape(4, 5)
    assert base.is_shared() and base.share_memory_() is base
    before, address = torch_musa.memory_allocated(1), base.data_ptr()
    inbox.put(base[1:, ::2])
    result = {"first": outbox.get(timeout=100)}
    base[1, 0] = -5
    inbox.put("written")
    inbox.put(base)
    result["second"] = outbox.get(timeout=100)
    result["reverse"] = float(base[1, 2])
    result["in place"] = base.data_ptr() == address and torch_musa.memory_allocated(1) == before
    del base
    gc.collect()
    result["kept"] = torch_musa.memory_allocated(1) - before
    inbox.put("drop")
    result["third"] = outbox.get(timeout=100)
    torch_musa.ipc_collect()
    result["freed"] = torch_musa.memory_allocated(1) - start
    child.join(60)
    result["exit"] = child.exitcode
    return result

def model(method):
    ctx = mp.get_context(method)
    outbox = ctx.Queue()
    net = torch.nn.Linear(2, 2).musa()
    net.bias.requires_grad_(False)
    net.share_memory()
    data = torch.ones(3, device="musa").to_sparse()
    before = [p.detach().clone() for p in net.parameters()]
    child = ctx.Process(target=trainer, args=(net, data, outbox))
    child.start()
    kinds = outbox.get(timeout=100)
    child.join(60)
    return {"kinds": kinds, "moved": [float((p.detach() - b).mean()) for p, b in zip(net.parameters(), before)],
            "exit": child.exitcode}

def late(method):
    # The sender is gone before its tensor is fetched.
    ctx = mp.get_context(method)
    outbox = ctx.Queue()
    child = ctx.Process(target=send_and_leave, args=(outbox,))
    child.start()
    child.join(60)
    try:
        outbox.get(timeout=60)
    except RuntimeError as error:
        return {"error": str(error), "exit": child.exitcode}
    return {"error": ""}

def send_and_leave(outbox):
    outbox.put(torch.ones(3, device="musa"))

if __name__ == "__main__":
    print(json.dumps(globals()[sys.argv[1]](sys.argv[2])))
"""


@pytest.fixture
def program(tmp_path):
    (tmp_path / "program.py").write_text(PROGRAM)

    def run(what, method):
        import os

        env = {k: v for k, v in os.environ.items() if not k.startswith("TORCHADA")} | {
            "TORCHADA": "0",
            "TORCHADA_SIM_DEVICES": "2",
            "PYTHONPATH": str(ROOT),
        }
        done = subprocess.run(
            [sys.executable, "program.py", what, method],
            cwd=tmp_path,
            env=env,
            capture_output=True,
            text=True,
            timeout=240,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    return run


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_both_sides_work_on_the_same_memory(program, method):
    result = program("sharing", method)
    assert result["first"] == [(5 + 7 + 9) + (10 + 12 + 14) + (15 + 17 + 19), "musa:1", 5, [5, 2], True]
    seen, error, same, allocated, resizable = result["second"]
    assert seen == -5 and same and allocated == 0 and not resizable
    assert "received from another process" in error and "Consider cloning" in error
    assert result["reverse"] == 77
    assert result["in place"]
    assert result["kept"] == 0, "the receiver still has it"
    assert result["third"] == "gone" and result["freed"] == 0 and result["exit"] == 0


def test_parameters_and_sparse_tensors(program):
    result = program("model", "spawn")
    assert result["kinds"] == ["ParameterTrue", "ParameterFalse", 3.0]
    assert result["moved"] == pytest.approx([1.0, 1.0]) and result["exit"] == 0


def test_a_sender_that_ended(program):
    result = program("late", "spawn")
    assert "must live until it is received" in result["error"] and result["exit"] == 0


def test_a_forked_child_cannot_use_the_device(run_python):
    run_python(
        """
        import os
        import torchada.simulator; torchada.simulator.install()
        import torch, torch_musa
        x = torch.ones(3, device="musa")
        child = os.fork()
        if child == 0:
            try:
                torch.ones(3, device="musa")
            except RuntimeError as error:
                os._exit(7 if "Cannot re-initialize MUSA in forked subprocess" in str(error) else 8)
            os._exit(9)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        assert x.sum().item() == 3
        """,
        env={"TORCHADA": "0"},
    )


# ---- in one process -----------------------------------------------------------------------------------


def test_what_a_handle_is():
    x = torch.arange(300.0, device="musa:1")
    device, handle, size, offset, counter, counter_offset, event, must_wait = x[7:].untyped_storage()._share_musa_()
    assert (device, size) == (1, 1200) and isinstance(handle, bytes) and isinstance(counter, bytes)
    assert offset % 512 == 0 and counter_offset % 8 == 0 and isinstance(event, bytes) and must_wait is False
    with pytest.raises(RuntimeError, match="invalid device context"):  # as the driver: it is open here
        torch.UntypedStorage._new_shared_musa(device, handle, size, offset, counter, counter_offset, event, must_wait)
    nothing = torch.empty(0, device="musa").untyped_storage()._share_musa_()
    assert nothing[1] is None and nothing[2] == 0


@pytest.mark.parametrize("handle", [b"", b"sim:", b"sim:1:2:3:4:5 ", b"x" * 64])
def test_wrong_handles(handle):
    x = torch.ones(3, device="musa")
    arguments = list(x.untyped_storage()._share_musa_())
    arguments[1] = handle
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        torch.UntypedStorage._new_shared_musa(*arguments)


def test_wrong_arguments():
    for call in (
        lambda: CORE._share_musa_(3),
        lambda: CORE._new_shared_musa(0),
        lambda: CORE._release_ipc_counter_musa("text", 0),
    ):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(ValueError, match="counter offset"):
        CORE._release_ipc_counter_musa(b"sim:1:2:3:4:5", 3)
    with pytest.raises(RuntimeError, match="only available on MUSA"):
        CORE._share_musa_(torch.ones(3).untyped_storage())


def test_what_cannot_be_sent():
    x = torch.ones(3, device="musa", requires_grad=True) * 2
    with pytest.raises(RuntimeError, match="Cowardly refusing to serialize non-leaf tensor"):
        ForkingPickler.dumps(x)
    with pytest.raises(RuntimeError, match="Cannot pickle CUDA storage"):
        ForkingPickler.dumps(x.untyped_storage())


EVENTS = """
import sys
import torchada.simulator
torchada.simulator.install()
import torch, torch_musa
import torch.multiprocessing as mp

def waiter(inbox, outbox):
    x = inbox.get(timeout=100)
    event = inbox.get(timeout=100)
    outbox.put([event.query(), str(event.device)])  # not recorded yet
    inbox.get(timeout=100)
    before = event.query()
    event.wait()
    y = (x * 2).tolist()
    event.synchronize()
    outbox.put([before, y, event.query()])
    inbox.get(timeout=100)

if __name__ == "__main__":
    ctx = mp.get_context("spawn")
    inbox, outbox = ctx.Queue(), ctx.Queue()
    child = ctx.Process(target=waiter, args=(inbox, outbox))
    child.start()
    event = torch_musa.Event(interprocess=True)
    x = torch.zeros(3, device="musa")
    inbox.put(x)
    inbox.put(event)
    print(outbox.get(timeout=100))
    stream = torch_musa.Stream()
    with torch_musa.stream(stream):
        torch_musa._sleep(2_000_000_000)
        x.fill_(5)
        event.record()
    inbox.put("go")
    print(outbox.get(timeout=100))
    event.synchronize()
    print(event.query())
    inbox.put(None)
    child.join(100)
    print(child.exitcode)
"""


@pytest.mark.parametrize("asynchronous", [False, True])
def test_events_between_processes(tmp_path, asynchronous):
    program = tmp_path / "events.py"
    program.write_text(EVENTS)
    env = {**os.environ, "TORCHADA": "0", "PYTHONPATH": str(ROOT), "TORCHADA_SIM_ASYNC": str(int(asynchronous))}
    done = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, env=env, timeout=200)
    assert done.returncode == 0, done.stderr
    # Asynchronous: the other process sees the event before its stream has come to it.
    used = f"[{not asynchronous}, [10.0, 10.0, 10.0], True]"
    assert done.stdout.splitlines() == ["[True, 'musa:0']", used, "True", "0"]


def test_a_handle_gives_an_event_its_device():
    event = torch_musa.Event(interprocess=True)
    assert event.device is None
    with torch_musa.device(1):
        _, arguments = torch_musa.core.reductions.reduce_event(event)
    assert event.device == arguments[0] == torch.device("musa:1")
    with pytest.raises(RuntimeError, match="Event device 1 does not match recording stream's device 0"):
        event.record(torch_musa.current_stream(0))
    event.record(torch_musa.current_stream(1))


def test_handles_of_events():
    with pytest.raises(RuntimeError, match="invalid argument"):
        torch_musa.Event().ipc_handle()  # not made with interprocess
    with pytest.raises(RuntimeError, match="timestamps"):
        torch_musa.Event(enable_timing=True, interprocess=True)
    event = torch_musa.Event(interprocess=True)
    event.record()
    handle = event.ipc_handle()
    assert isinstance(handle, bytes) and event.ipc_handle() == handle
    event.wait()
    event.synchronize()
    assert event.query()
    device = torch.device("musa:0")
    for wrong in (b"", b"x", handle + b"x", handle.partition(b"/")[0]):
        with pytest.raises(RuntimeError, match="invalid resource handle"):
            torch_musa.Event.from_ipc_handle(device, wrong)
    for own in (device, "musa:0", 0):
        with pytest.raises(RuntimeError, match="invalid device context"):  # of this very process
            torch_musa.Event.from_ipc_handle(own, handle)
    with pytest.raises(RuntimeError, match="invalid resource handle"):  # torch's parser takes a text for bytes
        torch_musa.Event.from_ipc_handle(device, "text")
    with pytest.raises(TypeError):
        torch_musa.Event.from_ipc_handle(device, 1)
    with pytest.raises(ValueError, match="musa device"):
        torch_musa.Event.from_ipc_handle(torch.device("cpu"), handle)
