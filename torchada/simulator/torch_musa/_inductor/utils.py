"""What inductor's helpers say about the device."""

from torch._inductor.utils import GPU_TYPES

from . import _install
from ._install import has_triton, is_gpu
from .benchmark import TritonBenchmarker
from .package import _refuse_aot

__all__ = ["GPU_TYPES", "TritonBenchmarker", "aot_inductor_launcher", "has_triton", "is_gpu"]


def _apply_util_patches():
    """Put these into torch; done when torch's modules are imported."""
    _install.install()


def aot_inductor_launcher(so_path, device):
    """The C++ class that runs a model compiled ahead of time."""
    _refuse_aot("torch_musa._inductor.utils.aot_inductor_launcher")
