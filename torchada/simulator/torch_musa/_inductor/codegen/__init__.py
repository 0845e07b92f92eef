"""Code generation for MUSA."""

from ..._late import lazily
from . import cpp_utils  # noqa: F401

_MODULES = (
    "codecache",
    "codegen_device_driver",
    "cpp_wrapper_cpu",
    "cpp_wrapper_musa",
    "device_op_overrides",
    "triton",
    "wrapper",
)

__getattr__, __dir__ = lazily(__name__, {name: (f".{name}", None) for name in _MODULES})
