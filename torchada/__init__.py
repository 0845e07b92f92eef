"""torchada: PyTorch programs written for CUDA run unmodified on Moore Threads (MUSA) GPUs.

Importing this package switches it on for the process (see ``status()``); where there is no MUSA stack it stays inert.
The package itself imports nothing but ``sys`` and ``os``: every public name is loaded when it is first asked for.
"""

import sys as _sys

from . import startup as _startup

__version__ = "0.1.0"

_PUBLIC = {
    "ConfigError": "errors",
    "CUDA_HOME": "toolkit",
    "NotOnMusa": "errors",
    "Platform": "platform",
    "TorchadaError": "errors",
    "TorchadaWarning": "errors",
    "activate": "api",
    "cublas_to_mublas_name": "names",
    "cuda_to_musa_name": "names",
    "curand_to_murand_name": "names",
    "deactivate": "api",
    "detect_platform": "platform",
    "disabled": "api",
    "is_active": "api",
    "is_cuda_platform": "platform",
    "is_gpu_device": "platform",
    "is_musa_platform": "platform",
    "masquerade": "scope",
    "nccl_to_mccl_name": "names",
    "simulate": "api",
    "status": "api",
}
__all__ = ["__version__", *_PUBLIC]


def __getattr__(name):
    home = _PUBLIC.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    value = getattr(import_module(f"{__name__}.{home}"), name)
    setattr(_sys.modules[__name__], name, value)
    return value


def __dir__():
    return sorted({*globals(), *__all__})


try:
    _startup.start("import")
except ValueError as _error:
    if "torchada" not in _sys.orig_argv or _sys.argv[0] != "-m":
        raise
    # `python -m torchada` imports this before its own code can say it in one line.
    _sys.exit(f"torchada: {_error}")
