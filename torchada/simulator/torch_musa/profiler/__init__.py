"""Analysis of profiles for MUSA. (Not the counterpart of torch.cuda.profiler.)"""

import importlib
import sys
from typing import Any

from .._late import when_imported

_WHERE = {
    "BasicEvaluation": "_utils",
    "ExtraMUSACopyPattern": "_pattern_matcher",
    "FP32MatMulPattern": "_pattern_matcher",
    "MatMulDimInFP16Pattern": "_pattern_matcher",
    "report_all_anti_patterns": "_pattern_matcher",
}


def _patch_utils():
    utils: Any = sys.modules["torch.profiler._utils"]
    utils.BasicEvaluation = importlib.import_module("._utils", __name__).BasicEvaluation


def _patch_patterns():
    importlib.import_module("._pattern_matcher", __name__)  # it puts its names into torch's module at its end


def set_profiler_attributes():
    """Put these into torch.profiler, now or when its modules are imported."""
    when_imported("torch.profiler._utils", _patch_utils)
    when_imported("torch.profiler._pattern_matcher", _patch_patterns)


def __getattr__(name):
    if name in ("_pattern_matcher", "_utils"):
        return importlib.import_module("." + name, __name__)
    if name in _WHERE:
        return getattr(importlib.import_module("." + _WHERE[name], __name__), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__():
    return sorted({*globals(), *_WHERE, "_pattern_matcher", "_utils"})
