"""Patterns in a profile that cost time on the device."""

import sys
from typing import Any

import torch_musa
from torch.profiler._pattern_matcher import Pattern

from .._renamed import definitions

__all__ = [
    "ExtraMUSACopyPattern",
    "FP32MatMulPattern",
    "MatMulDimInFP16Pattern",
    "Pattern",
    "report_all_anti_patterns",
]

(ExtraMUSACopyPattern, _FP32MatMulPattern, MatMulDimInFP16Pattern, report_all_anti_patterns) = definitions(
    "torch.profiler._pattern_matcher",
    ["ExtraMUSACopyPattern", "FP32MatMulPattern", "MatMulDimInFP16Pattern", "report_all_anti_patterns"],
)


class FP32MatMulPattern(_FP32MatMulPattern):  # type: ignore[misc, valid-type]
    """Matrix products in float32 on a device that has TF32."""

    def __init__(self, prof, should_benchmark=False):
        super().__init__(prof, should_benchmark)

    @property
    def skip(self):
        """Whether there is nothing to look for."""
        return not torch_musa.is_tf32_supported() or Pattern.skip.fget(self) or not self.prof.record_shapes


_theirs: Any = sys.modules[Pattern.__module__]
for _name in __all__:
    _ours: Any = globals()[_name]
    if _name != "Pattern":
        _ours.__module__ = __name__
        setattr(_theirs, _name, _ours)
report_all_anti_patterns.__globals__["FP32MatMulPattern"] = FP32MatMulPattern
