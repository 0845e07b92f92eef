"""Streams and events as CUDA programs use them."""

import ctypes
import inspect

import pytest
import torch
import torch_musa

import torchada


def test_classes():
    assert torch.cuda.Stream is torch_musa.Stream is torch.cuda.streams.Stream
    assert torch.cuda.Event is torch_musa.Event is torch.cuda.streams.Event
    assert issubclass(torch.cuda.Stream, torch.Stream) and issubclass(torch.cuda.Event, torch.Event)
    for stream in (torch.cuda.current_stream(), torch.cuda.default_stream(), torch.cuda.Stream()):
        assert isinstance(stream, torch.cuda.Stream) and isinstance(stream, torch.Stream)
    assert torch.cuda.current_stream is torch_musa.current_stream  # no wrapper on a hot call


@pytest.mark.parametrize("device", [1, "cuda:1", torch.device("cuda:1")])
def test_stream_constructors(device):
    for stream in (torch.cuda.Stream(device), torch.cuda.Stream(device=device, priority=-1)):
        assert stream.device == torch.device("cuda:1")
        assert stream.device_index == 1
    assert torch.cuda.current_device() == 0
    assert torch.cuda.Stream(priority=0).device == torch.device("cuda:0")
    assert torch.cuda.Stream(None).device == torch.device("cuda:0")
    with pytest.raises(ValueError, match="but got: cpu"):
        torch.cuda.Stream("cpu")


def test_streams_by_identity_numbers():
    stream = torch.cuda.Stream()
    same = torch.cuda.Stream(
        stream_id=stream.stream_id, device_index=stream.device_index, device_type=stream.device_type
    )
    assert same == stream and hash(same) == hash(stream) and same is not stream
    assert {stream: 1}[same] == 1
    assert stream != torch.cuda.default_stream() and stream != 5 and stream is not None


def test_priority():
    least, greatest = torch.cuda.Stream.priority_range()
    assert greatest <= 0 <= least
    assert torch.cuda.Stream(priority=greatest).priority == greatest


def test_handles():
    stream = torch.cuda.Stream()
    assert isinstance(stream.cuda_stream, int) and stream.cuda_stream == stream.musa_stream
    assert torch.cuda.default_stream().cuda_stream == torch.cuda.default_stream().musa_stream
    assert isinstance(stream._as_parameter_, ctypes.c_void_p)
    assert stream.__cuda_stream__() == (0, stream.musa_stream)
    event = torch.cuda.Event()
    assert event.cuda_event == event.musa_event
    event.record(stream)
    assert event.cuda_event == event.musa_event != 0


def test_handles_are_undone(run_python):
    done = run_python(
        """
        import torchada, torch, torch_musa
        torch.cuda.Stream().cuda_stream
        torch.cuda.Event(external=False)
        torchada.deactivate()
        print([hasattr(torch_musa.Stream, "cuda_stream"), hasattr(torch_musa.Event, "cuda_event")])
        try:
            torch_musa.Event(external=False)
        except TypeError:
            print("as before")
        """
    )
    assert done.stdout.splitlines() == ["[False, False]", "as before"]


def test_stream_context():
    stream, other = torch.cuda.Stream(), torch.cuda.Stream(device=1)
    default = torch.cuda.current_stream()
    with torch.cuda.stream(stream) as entered:
        assert entered is None
        assert torch.cuda.current_stream() == stream
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_stream() == default
    with torch.cuda.stream(other):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == other
    assert torch.cuda.current_device() == 0
    assert torch.cuda.current_stream() == default
    assert isinstance(torch.cuda.stream(stream), torch.cuda.StreamContext)
    with torch.cuda.StreamContext(stream):
        assert torch.cuda.current_stream() == stream


def test_set_stream():
    default = torch.cuda.current_stream()
    stream = torch.cuda.Stream()
    try:
        torch.cuda.set_stream(stream)
        assert torch.cuda.current_stream() == stream
        torch.cuda.set_stream(None)
        assert torch.cuda.current_stream() == stream
    finally:
        torch.cuda.set_stream(default)
    assert torch.cuda.current_stream() == default


def test_current_and_default_streams_by_device():
    for device in (1, "cuda:1", torch.device("cuda:1")):
        assert torch.cuda.current_stream(device).device == torch.device("cuda:1")
        assert torch.cuda.default_stream(device=device).device == torch.device("cuda:1")
    assert torch.cuda.current_stream(1) == torch.cuda.default_stream(1)


def test_waiting_and_recording():
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(producer):
        x = torch.full((1000,), 2.0, device="cuda")
        done = producer.record_event()
    assert isinstance(done, torch.cuda.Event)
    own = torch.cuda.Event()
    assert producer.record_event(own) is own
    consumer.wait_stream(producer)
    consumer.wait_event(done)
    done.wait(consumer)
    done.wait()
    with torch.cuda.stream(consumer):
        y = x * 3
        x.record_stream(consumer)
    consumer.synchronize()
    assert consumer.query() is True
    assert done.query() is True
    assert y.sum().item() == 6000.0


def test_timing():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.ones(500, 500, device="cuda") @ torch.ones(500, 500, device="cuda")
    end.record(torch.cuda.current_stream())
    end.synchronize()
    elapsed = start.elapsed_time(end)
    assert isinstance(elapsed, float) and elapsed >= 0
    torch.cuda.synchronize()


def test_timing_needs_enable_timing():
    start, end = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    end.record()
    torch.cuda.synchronize()
    with pytest.raises((RuntimeError, ValueError)):
        start.elapsed_time(end)


def test_event_constructors():
    for arguments, keywords in (
        ((), {}),
        ((True,), {}),
        ((False, True, False), {}),
        ((False, False, False, False), {}),
        ((), {"enable_timing": True, "blocking": True, "interprocess": False}),
        ((), {"external": False}),
    ):
        assert type(torch.cuda.Event(*arguments, **keywords)) is torch.cuda.Event
    for arguments, keywords in (((False, False, False, True), {}), ((), {"external": True})):
        with pytest.raises(torchada.NotOnMusa, match="external"):
            torch.cuda.Event(*arguments, **keywords)
    with pytest.raises(TypeError):
        torch.cuda.Event(nonsense=1)


def test_events_can_be_subclassed():
    class Mine(torch.cuda.Event):
        pass

    assert type(Mine(enable_timing=True)) is Mine

    class MyStream(torch.cuda.Stream):
        pass

    assert type(MyStream(device="cuda:1")) is MyStream


def test_event_repr():
    event = torch.cuda.Event()
    assert "uninitialized" in repr(event)
    event.record()
    assert "0x" in repr(event)
    assert "0x" in repr(torch.cuda.Stream())


def test_external_streams():
    stream = torch.cuda.Stream(device=1)
    external = torch.cuda.ExternalStream(stream.cuda_stream, device="cuda:1")
    assert isinstance(external, torch.cuda.Stream)
    assert external.cuda_stream == stream.cuda_stream
    assert external.device == torch.device("cuda:1")
    again = torch.cuda.get_stream_from_external(stream.cuda_stream, torch.device("cuda:1"))
    assert isinstance(again, torch.cuda.Stream) and again.cuda_stream == stream.cuda_stream
    with torch.cuda.stream(again):
        assert torch.cuda.current_stream().cuda_stream == stream.cuda_stream


def test_generic_streams_and_events():
    stream = torch.Stream(device="cuda:1")
    assert stream.device == torch.device("cuda:1")
    event = torch.Event("cuda")
    event.record()
    event.synchronize()
    assert event.query()


def test_signatures_of_methods():
    for name in ("wait_event", "wait_stream", "record_event", "query", "synchronize"):
        assert "self" in inspect.signature(getattr(torch.cuda.Stream, name)).parameters


def test_handles_for_other_processes():
    """What the other process does with it: tests/simulator/test_ipc.py."""
    event = torch.cuda.Event(interprocess=True)
    event.record()
    assert isinstance(event.ipc_handle(), bytes)
    for device in (torch.device("cuda:0"), "cuda:0", 0):
        with pytest.raises(RuntimeError, match="invalid device context"):  # of this very process, as on CUDA
            torch.cuda.Event.from_ipc_handle(device, event.ipc_handle())
    with pytest.raises(RuntimeError, match="invalid argument"):
        torch.cuda.Event().ipc_handle()
