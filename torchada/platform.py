"""Which accelerator stack is installed here. The stack decides, not a present card: build containers have none."""

from __future__ import annotations

import os
import re
import sys
from enum import Enum
from importlib.machinery import ModuleSpec
from pathlib import Path
from typing import Any

from . import startup
from .errors import ConfigError
from .gates import FALSE_WORDS, TRUE_WORDS


class Platform(Enum):
    """The accelerator stack of this environment."""

    CUDA = "cuda"
    MUSA = "musa"
    CPU = "cpu"


def env_flag(name: str, default: bool = False) -> bool:
    """A yes/no environment variable. Raises ConfigError for a word that is neither."""
    word = os.environ.get(name, "").strip().lower()
    if word == "":
        return default
    if word in TRUE_WORDS:
        return True
    if word in FALSE_WORDS:
        return False
    raise ConfigError(f"{name}={os.environ[name]!r} is not understood: use one of 1, true, yes, on, 0, false, no, off")


def find_module(name: str) -> ModuleSpec | None:
    """The spec the finders on sys.meta_path give for a top-level module, which is not imported by this."""
    for finder in [finder for finder in sys.meta_path if finder is not startup.SENTINEL]:
        find = getattr(finder, "find_spec", None)
        spec: ModuleSpec | None = find(name, None, None) if find else None
        if spec is not None:
            # A folder without code (left by an uninstall, or of the user's own) is no module that is installed.
            return None if spec.origin is None and spec.submodule_search_locations is not None else spec
    return None


def detect_platform() -> Platform:
    """The platform of this environment: MUSA where torch_musa is installed (or simulated), else CUDA where torch is a
    CUDA build, else CPU. ``TORCHADA_PLATFORM=cuda|musa|cpu`` forces the answer; another value raises ConfigError."""
    forced = os.environ.get("TORCHADA_PLATFORM", "").strip().lower()
    if forced:
        try:
            return Platform(forced)
        except ValueError:
            choices = ", ".join(platform.value for platform in Platform)
            raise ConfigError(f"TORCHADA_PLATFORM={forced!r} is not a platform: use one of {choices}") from None
    if simulated() or _has_torch_musa():
        return Platform.MUSA
    return Platform.CUDA if torch_cuda_version() else Platform.CPU


def _has_torch_musa() -> bool:
    if "torch_musa" in sys.modules:
        return sys.modules["torch_musa"] is not None  # None there forbids the import
    return find_module("torch_musa") is not None


def simulated() -> bool:
    """Whether this process asks for the simulated device (``TORCHADA_SIMULATE=1``)."""
    return env_flag("TORCHADA_SIMULATE")


def torch_cuda_version() -> str | None:
    """The CUDA version torch was built for, or None; read from torch/version.py as long as torch is not imported."""
    version = sys.modules.get("torch.version")
    if version is not None:
        return getattr(version, "cuda", None)  # not from its dict: a masquerade moves it
    spec = find_module("torch")
    if spec is None or not spec.origin:
        return None
    file = Path(spec.origin).with_name("version.py")
    text = file.read_text() if file.is_file() else ""
    match = re.search(r"^cuda\b[^=\n]*=\s*['\"]([\d.]+)['\"]", text, re.MULTILINE)
    return match.group(1) if match else None


def is_musa_platform() -> bool:
    """Whether this environment has the MUSA stack. ``TORCHADA_FORCE_CUDA_AVAILABLE`` does not change the answer."""
    return detect_platform() is Platform.MUSA


def is_cuda_platform() -> bool:
    """Whether this environment has NVIDIA's stack (a CUDA build of torch and no torch_musa)."""
    return detect_platform() is Platform.CUDA


def is_gpu_device(x: Any) -> bool:
    """Whether *x* names a GPU: a device, a device string, an object with a ``device`` (tensor, module parameter), or
    an accelerator index (an int of 0 or more, on a machine with a GPU stack).

    Raises TypeError for anything else.
    """
    if isinstance(x, bool) or x is None:
        raise TypeError(f"is_gpu_device() takes a device, string, tensor or int, not {type(x).__name__}")
    if isinstance(x, int):
        return x >= 0 and detect_platform() is not Platform.CPU
    if isinstance(x, str):
        return x.partition(":")[0] in ("cuda", "musa")
    kind = getattr(getattr(x, "device", x), "type", None)
    if not isinstance(kind, str):
        raise TypeError(f"is_gpu_device() takes a device, string, tensor or int, not {type(x).__name__}")
    return kind in ("cuda", "musa")
