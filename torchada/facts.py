"""Collecting the facts gates ask for."""

from __future__ import annotations

import gc
import os
import platform as _platform
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import metadata
from typing import Any

from .gates import Facts
from .graph_settings import graph_settings
from .platform import detect_platform, env_flag
from .rules import Table
from .scope import SCOPE

PREFIXES = ("TORCHADA", "TORCH_", "PYTORCH_", "MUSA_", "CUDA_")
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
VARIABLES = (
    "TORCHADA",
    "TORCHADA_CPP_OPS_VERBOSE",
    "TORCHADA_CUDA_GRAPH_DEBUG_DUMP_PATH",
    "TORCHADA_DEBUG_CPP_OPS",
    "TORCHADA_DISABLE_OP_OVERRIDE_BMM",
    "TORCHADA_DISABLE_OP_OVERRIDE_CLUTTER",
    "TORCHADA_DISABLE_OP_OVERRIDE_ISFINITE",
    "TORCHADA_DISABLE_OP_OVERRIDE_LOG",
    "TORCHADA_DISABLE_OP_OVERRIDE_LOG_",
    "TORCHADA_DISABLE_OP_OVERRIDE_MM",
    "TORCHADA_DISABLE_OP_OVERRIDE_MULTINOMIAL",
    "TORCHADA_DISABLE_OP_OVERRIDE_SYNC_BATCH_NORM",
    "TORCHADA_DISABLE_OP_OVERRIDE_TEMPLATE_HEURISTICS",
    "TORCHADA_EXCLUDE_DIRS",
    "TORCHADA_FORCE_CUDA_AVAILABLE",
    "TORCHADA_GRAPH_AUTOPROBE",
    "TORCHADA_GRAPH_EXEC_CAP",
    "TORCHADA_GRAPH_EXEC_MARGIN",
    "TORCHADA_GRAPH_ROTATION",
    "TORCHADA_MASQUERADE",
    "TORCHADA_NO_MASQUERADE",
    "TORCHADA_PLATFORM",
    "TORCHADA_PORT",
    "TORCHADA_PORT_PTX",
    "TORCHADA_SIMULATE",
    "TORCHADA_SIM_ASYNC",
    "TORCHADA_SIM_CACHE",
    "TORCHADA_SIM_CXXFLAGS",
    "TORCHADA_SIM_DEFECTS",
    "TORCHADA_SIM_DEVICE",
    "TORCHADA_SIM_DEVICES",
    "TORCHADA_SIM_GRAPH_EXECS",
    "TORCHADA_SIM_MEMORY",
    "TORCHADA_SIM_TORCH_MUSA",
    "TORCHADA_STRICT",
)


def snapshot(table: Table, late: bool) -> Facts:
    """Facts of this process, now. Only the features that some gate of *table* names are looked up."""
    return Facts(
        platform=detect_platform().value,
        versions=versions(),
        env={name: value for name, value in os.environ.items() if name.startswith(PREFIXES)},
        features={name: feature(name) for name in table.features()},
        late=late,
        masquerade=SCOPE.used,
    )


def check_switches(table: Table) -> None:
    """Raise ConfigError where a switch that some gate asks for, or one of the operator overrides, has a word that is
    neither yes nor no, or a setting of graphs is not understood."""
    for name in (*sorted(table.switches()), "TORCHADA_CPP_OPS_VERBOSE", "TORCHADA_DEBUG_CPP_OPS"):
        env_flag(name)
    graph_settings()


def versions() -> dict[str, str | None]:
    return {"python": _platform.python_version()} | {name: _version(name) for name in ("torch", "torch_musa", "triton")}


def _version(name: str) -> str | None:
    module = sys.modules.get(name)
    found = getattr(module, "__version__", None) if module is not None else None
    if found is not None:
        return str(found)
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def feature(path: str) -> bool:
    """Whether ``torch.accelerator`` and the like exist, by walking from the longest imported module."""
    parts = path.split(".")
    for cut in range(len(parts), 0, -1):
        value: Any = sys.modules.get(".".join(parts[:cut]))
        if value is not None:
            for part in parts[cut:]:
                value = getattr(value, part, None)
            return value is not None
    return False


@contextmanager
def hold_autoload() -> Iterator[bool]:
    """Keep torch from importing device backends at its end, where a broken one breaks torch: we do it right after.

    Yields whether the user wants them imported.
    """
    before = os.environ.get(AUTOLOAD)
    os.environ[AUTOLOAD] = "0"
    try:
        yield before in (None, "1")
    finally:
        os.environ.pop(AUTOLOAD, None)
        if before is not None:
            os.environ[AUTOLOAD] = before


@contextmanager
def paused_collection() -> Iterator[None]:
    """No garbage collection meanwhile: what arming makes lives as long as the process, and one full collection over
    torch's objects takes longer than all of it."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()
