"""Streams and events."""

import threading

import torch


def a_stream_of_the_current_device():
    stream = torch.cuda.Stream()
    assert stream.device == torch.device("cuda", torch.cuda.current_device())
    assert isinstance(stream.cuda_stream, int)


def constructor_arguments():
    assert torch.cuda.Stream(device="cuda:1").device.index == 1
    assert torch.cuda.Stream(1).device.index == 1
    assert torch.cuda.Stream(device=torch.device("cuda:0"), priority=-1).device.index == 0


def priorities():
    low, high = torch.cuda.Stream.priority_range()
    assert high <= low
    assert torch.cuda.Stream(priority=high).priority == high


def current_and_default():
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    assert torch.cuda.default_stream(1).device.index == 1
    assert torch.cuda.current_stream("cuda:1") == torch.cuda.default_stream(torch.device("cuda:1"))


def stream_context():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream) as entered:
        assert torch.cuda.current_stream() == stream
        x = torch.ones(4, device="cuda") * 2
    assert entered is None or entered == stream
    assert torch.cuda.current_stream() == torch.cuda.default_stream()
    torch.cuda.current_stream().wait_stream(stream)
    assert x.sum().item() == 8


def stream_as_its_own_context():
    stream = torch.cuda.Stream()
    with torch.cuda.StreamContext(stream):
        assert torch.cuda.current_stream() == stream
    with torch.cuda.stream(None):
        assert torch.cuda.current_stream() == torch.cuda.default_stream()


def stream_of_another_device():
    stream = torch.cuda.Stream("cuda:1")
    with torch.cuda.stream(stream):
        assert torch.cuda.current_device() == 1
        assert torch.cuda.current_stream() == stream
    assert torch.cuda.current_device() == 0


def nested_streams():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        with torch.cuda.stream(b):
            assert torch.cuda.current_stream() == b
        assert torch.cuda.current_stream() == a


def set_stream():
    stream = torch.cuda.Stream()
    torch.cuda.set_stream(stream)
    try:
        assert torch.cuda.current_stream() == stream
    finally:
        torch.cuda.set_stream(torch.cuda.default_stream())


def equality_and_hash():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        again = torch.cuda.current_stream()
    assert again == stream and hash(again) == hash(stream)
    assert stream != torch.cuda.default_stream()
    assert len({stream, again}) == 1


def query_and_synchronize():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        torch.cuda._sleep(1000)
    stream.synchronize()
    assert stream.query() is True


def wait_for_a_stream():
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(a):
        x = torch.arange(1000, device="cuda")
    b.wait_stream(a)
    with torch.cuda.stream(b):
        y = x + 1
    torch.cuda.current_stream().wait_stream(b)
    assert y[-1].item() == 1000


def record_stream():
    stream = torch.cuda.Stream()
    x = torch.ones(1000, device="cuda")
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        y = x * 3
    x.record_stream(stream)
    del x
    stream.synchronize()
    assert y.sum().item() == 3000


def events_in_order():
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    start.record()
    torch.ones(100, device="cuda").sum()
    end.record()
    end.synchronize()
    assert start.query() and end.query()
    assert start.elapsed_time(end) >= 0


def event_on_a_stream():
    stream = torch.cuda.Stream()
    event = torch.cuda.Event()
    with torch.cuda.stream(stream):
        x = torch.full((10,), 2.0, device="cuda")
        event.record(stream)
    torch.cuda.current_stream().wait_event(event)
    assert x.sum().item() == 20
    other = stream.record_event()
    other.wait(torch.cuda.current_stream())
    other.synchronize()
    assert other.query()


def record_event_with_its_own():
    stream = torch.cuda.Stream()
    mine = torch.cuda.Event()
    assert stream.record_event(mine) is mine
    mine.wait()


def event_arguments():
    for arguments in ({}, {"enable_timing": True}, {"blocking": True}, {"enable_timing": False, "interprocess": False}):
        event = torch.cuda.Event(**arguments)
        event.record()
        event.synchronize()
    assert isinstance(event.cuda_event, int)
    assert isinstance(repr(event), str)


def time_without_timing_is_an_error():
    a, b = torch.cuda.Event(), torch.cuda.Event()
    a.record()
    b.record()
    try:
        a.elapsed_time(b)
    except (RuntimeError, ValueError):
        pass
    else:
        raise AssertionError


def an_event_that_was_never_recorded_is_done():
    assert torch.cuda.Event().query() is True


def external_stream():
    own = torch.cuda.Stream()
    external = torch.cuda.ExternalStream(own.cuda_stream)
    assert external.cuda_stream == own.cuda_stream
    with torch.cuda.stream(external):
        x = torch.ones(3, device="cuda")
    external.synchronize()
    assert x.sum().item() == 3


def stream_from_external():
    own = torch.cuda.Stream()
    assert torch.cuda.get_stream_from_external(own.cuda_stream).cuda_stream == own.cuda_stream


def generic_stream_and_event():
    stream = torch.Stream(device="cuda")
    assert stream.device.index == torch.cuda.current_device()
    event = torch.Event("cuda", enable_timing=False)
    event.record(stream)
    event.synchronize()
    assert event.query()


def streams_belong_to_threads():
    stream = torch.cuda.Stream()
    seen = []

    def other():
        seen.append(torch.cuda.current_stream() == torch.cuda.default_stream())

    with torch.cuda.stream(stream):
        thread = threading.Thread(target=other)
        thread.start()
        thread.join()
    assert seen == [True]


def subclasses():
    class Mine(torch.cuda.Stream):
        pass

    stream = Mine()
    assert isinstance(stream, torch.cuda.Stream)
    with torch.cuda.stream(stream):
        assert torch.cuda.current_stream() == stream


def synchronisation_warnings_can_be_asked_for():
    before = torch.cuda.get_sync_debug_mode()
    torch.cuda.set_sync_debug_mode("default")
    assert torch.cuda.get_sync_debug_mode() == 0
    torch.cuda.set_sync_debug_mode(before)


def not_capturing():
    assert torch.cuda.is_current_stream_capturing() is False
