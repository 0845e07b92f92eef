"""NVTX ranges on a machine without NVTX: ranges of torch's own profiler while that one records."""

from __future__ import annotations

import itertools
import threading
from typing import Any

import torch
from torch.autograd.profiler import record_function

_local = threading.local()


def _stack() -> list[Any]:
    """The open ranges of this thread; None for one that was opened while no profiler recorded."""
    if not hasattr(_local, "stack"):
        _local.stack = []
    return _local.stack


class Ranges:
    """What torch.cuda.nvtx calls: the functions of the NVTX binding."""

    def __init__(self) -> None:
        self._tokens = itertools.count(1)

    def rangePushA(self, msg: str) -> int:
        """Open a range; returns its depth, from 0."""
        stack = _stack()
        opened = None
        if torch.autograd._profiler_enabled():
            opened = record_function(msg)
            opened.__enter__()
        stack.append(opened)
        return len(stack) - 1

    def rangePop(self) -> int:
        """Close the innermost range; returns its depth, or -2 (NVTX's answer) when none is open."""
        stack = _stack()
        if not stack:
            return -2
        opened = stack.pop()
        if opened is not None:
            opened.__exit__(None, None, None)
        return len(stack)

    def markA(self, msg: str) -> None:
        """A moment: an empty range while a profiler records."""
        if torch.autograd._profiler_enabled():
            with record_function(msg):
                pass

    def rangeStartA(self, msg: str) -> int:
        """A handle. Such a range may end on another thread, which torch's profiler cannot show: nothing is recorded."""
        return next(self._tokens)

    def rangeEnd(self, range_id: int) -> None:
        """Takes a handle of ``rangeStartA``."""

    def deviceRangeStart(self, msg: str, stream: int = 0) -> int:
        """A handle; ranges in device time need NVTX, so nothing is recorded."""
        return next(self._tokens)

    def deviceRangeEnd(self, range_handle: Any, stream: int = 0) -> None:
        """Takes a handle of ``deviceRangeStart``."""


NVTX = Ranges()
