"""Models compiled ahead of time."""

from .._not_simulated import refuse


def _refuse_aot(name):
    refuse(name, "AOTInductor runtime")


def load_package(path, device):
    """Load the model in the archive `path`."""
    _refuse_aot("torch_musa._inductor.package.load_package")


def _apply_package_patch():
    """Put `load_package` into torch."""
    _refuse_aot("torch_musa._inductor.package._apply_package_patch")
