"""Metrics of a profile."""

import functools

from torch.profiler import _utils
from torch.profiler._utils import EventKey, EventMetrics, Interval

from .._renamed import definitions

__all__ = ["BasicEvaluation", "EventKey", "EventMetrics", "Interval"]


@functools.cache
def _for_musa():
    (made,) = definitions("torch.profiler._utils", ["BasicEvaluation"])
    return made


class BasicEvaluation(_utils.BasicEvaluation):
    """Times of a profile's events, and how many kernels were waiting when each was launched."""

    def __init__(self, prof):
        super().__init__(prof)

    def compute_queue_depth(self):
        """Intervals with the number of kernels that were launched and not yet started."""
        return _for_musa().compute_queue_depth(self)
