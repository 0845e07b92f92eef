"""Patterns for torch.profiler's analysis; not simulated yet. (Not the counterpart of torch.cuda.profiler.)"""

from .._not_simulated import absent, refuse

_PART = "profiler patterns"


class BasicEvaluation:
    """Metrics of a profile."""

    def __init__(self, prof):
        refuse("torch_musa.profiler.BasicEvaluation", _PART)


class ExtraMUSACopyPattern:
    """Finds copies to the device that a constructor could avoid."""

    def __init__(self, prof, should_benchmark=False):
        refuse("torch_musa.profiler.ExtraMUSACopyPattern", _PART)


class FP32MatMulPattern:
    """Finds matrix products that could use TF32."""

    def __init__(self, prof, should_benchmark=False):
        refuse("torch_musa.profiler.FP32MatMulPattern", _PART)


class MatMulDimInFP16Pattern:
    """Finds half precision matrix products of unfavourable shape."""

    def __init__(self, prof, should_benchmark=False):
        refuse("torch_musa.profiler.MatMulDimInFP16Pattern", _PART)


def report_all_anti_patterns(prof, should_benchmark=False, print_enable=True, json_report_dir=None):
    """Report all patterns found in a profile."""
    refuse("torch_musa.profiler.report_all_anti_patterns", _PART)


def set_profiler_attributes():
    """Put the patterns into torch.profiler."""
    refuse("torch_musa.profiler.set_profiler_attributes", _PART)


__getattr__ = absent(__name__, {"_pattern_matcher", "_utils"}, _PART)
