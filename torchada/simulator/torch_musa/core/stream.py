"""Streams and events."""

import ctypes
from typing import Any

import torch_musa

from ._lazy_init import _lazy_init
from ._utils import DeviceUnion, _dummy_type, _get_musa_device_index  # noqa: F401
from .device import Device as device

_MUSAC = torch_musa._MUSAC
_device_t = DeviceUnion
_new_stream = _MUSAC._MusaStreamBase.__new__


class Stream(_MUSAC._MusaStreamBase):  # type: ignore[name-defined, misc]
    """A queue of work on one device. `priority`: lower runs first; see `priority_range()`."""

    def __new__(cls, device: Any = None, priority: int = 0, **kwargs: Any) -> "Stream":
        if device is None or ("stream_id" in kwargs and "device_index" in kwargs):
            return super().__new__(cls, priority=priority, **kwargs)
        with torch_musa.device(device):
            return super().__new__(cls, priority=priority, **kwargs)

    def wait_event(self, event: "Event") -> None:
        """Work queued from now on waits for `event`."""
        event.wait(self)

    def wait_stream(self, stream: "Stream") -> None:
        """Work queued from now on waits for all that is queued on `stream` now."""
        self.wait_event(stream.record_event())

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record `event` (default: a new one) here and return it."""
        if event is None:
            event = Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """True when all queued work is done."""
        return super().query()

    def synchronize(self) -> None:
        """Wait until all queued work is done."""
        super().synchronize()

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.musa_stream)

    def __eq__(self, o: object) -> bool:
        return isinstance(o, Stream) and super().__eq__(o)

    def __hash__(self) -> int:
        return hash((self.musa_stream, self.device))

    def __repr__(self) -> str:
        return f"<torch.musa.Stream device={self.device} musa_stream={self.musa_stream:#x}>"


class ExternalStream(Stream):
    """A stream made elsewhere, by its address. It is not owned: keep it alive yourself."""

    def __new__(cls, stream_ptr: int, device: Any = None, **kwargs: Any) -> "ExternalStream":
        with torch_musa.device(device):
            return super().__new__(cls, stream_ptr=stream_ptr, **kwargs)


class Event(_MUSAC._MusaEventBase):  # type: ignore[name-defined, misc]
    """A mark in a stream. `elapsed_time` needs `enable_timing` on both ends."""

    def __new__(cls, enable_timing: bool = False, blocking: bool = False, interprocess: bool = False) -> "Event":
        return super().__new__(cls, enable_timing=enable_timing, blocking=blocking, interprocess=interprocess)

    @classmethod
    def from_ipc_handle(cls, device: Any, handle: bytes) -> "Event":
        """The event another process made `handle` from."""
        return super().from_ipc_handle(device, handle)

    def record(self, stream: Any = None) -> None:
        """Put the mark into `stream` (default: the current one of the event's device)."""
        super().record(torch_musa.current_stream() if stream is None else stream)

    def wait(self, stream: Any = None) -> None:
        """Make `stream` (default: the current one) wait for this mark."""
        super().wait(torch_musa.current_stream() if stream is None else stream)

    def query(self) -> bool:
        """True when the work before the mark is done."""
        return super().query()

    def elapsed_time(self, end_event: "Event") -> float:
        """Milliseconds from this mark to `end_event`."""
        return super().elapsed_time(end_event)

    def synchronize(self) -> None:
        """Wait until the work before the mark is done."""
        super().synchronize()

    def ipc_handle(self) -> bytes:
        """A handle for another process; the event must be made with `interprocess`."""
        return super().ipc_handle()

    @property
    def _as_parameter_(self) -> ctypes.c_void_p:
        return ctypes.c_void_p(self.musa_event)

    def __repr__(self) -> str:
        if self.musa_event:
            return f"<torch.musa.Event {self._as_parameter_.value:#x}>"
        return "<torch.musa.Event uninitialized>"


class StreamContext:
    """Context manager: `stream` is current inside, and its device too. None changes nothing."""

    cur_stream: "Stream | None" = None

    def __init__(self, stream: "Stream | None") -> None:
        self.stream = stream
        self.idx = _get_musa_device_index(None, True)
        self.src_prev_stream: Any = None
        self.dst_prev_stream: Any = None

    def __enter__(self) -> None:
        target = self.stream
        if target is None or self.idx == -1:
            return
        self.src_prev_stream = current_stream(None)
        if self.src_prev_stream.device != target.device:
            with device(target.device):
                self.dst_prev_stream = current_stream(target.device)
        set_stream(target)

    def __exit__(self, type: Any, value: Any, traceback: Any) -> None:
        target = self.stream
        if target is None or self.idx == -1:
            return
        if self.src_prev_stream.device != target.device:
            set_stream(self.dst_prev_stream)
        set_stream(self.src_prev_stream)


def stream(stream: "Stream | None") -> StreamContext:
    """Context manager: `stream` is the current stream inside."""
    return StreamContext(stream)


def set_stream(stream: "Stream | None") -> None:
    """Make `stream`, and its device, current. None changes nothing; prefer `with torch.musa.stream(...)`."""
    if stream is not None:
        _set_stream_by_id(stream.stream_id, stream.device_index, stream.device_type)


def _set_stream_by_id(stream_id: int, device_index: int, device_type: int) -> None:
    _MUSAC._musa_setStream(stream_id=stream_id, device_index=device_index, device_type=device_type)


def current_stream(device: DeviceUnion = None) -> Stream:
    """The current stream of `device` (default: the current device)."""
    _lazy_init()
    # Called all the time: without Stream.__new__, and with arguments by position, it takes a quarter of the time.
    return _new_stream(Stream, 0, *_MUSAC._musa_getCurrentStream(_get_musa_device_index(device, optional=True)))


def default_stream(device: DeviceUnion = None) -> Stream:
    """The default stream of `device` (default: the current device)."""
    _lazy_init()
    ident, index, kind = _MUSAC._musa_getDefaultStream(_get_musa_device_index(device, optional=True))
    return Stream(stream_id=ident, device_index=index, device_type=kind)
