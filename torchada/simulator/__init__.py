"""A MUSA device without hardware: the vendor's `torch_musa` package over a backend in host memory.

    import torchada.simulator
    torchada.simulator.install()      # `import torch_musa` now finds the simulated package
    import torch, torch_musa

`python -m torchada --simulate` and TORCHADA_SIMULATE=1 call `install()` for you. Importing this module
loads neither torch nor the compiled backend; `import torch_musa` does, and builds the backend on first use.
"""

from __future__ import annotations

import importlib.machinery
import importlib.util
import os
import sys
from types import ModuleType
from typing import Any

__all__ = ["counters", "info", "install", "is_installed", "prepare", "reset_counters", "uninstall"]

_NAME = "torch_musa"
_PACKAGE_DIR = os.path.join(os.path.dirname(os.path.abspath(__file__)), _NAME)


class _Finder:
    """Answers exactly one name, `torch_musa`; its submodules come through the package's own path."""

    @classmethod
    def find_spec(
        cls, name: str, path: Any = None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if name != _NAME:
            return None
        return importlib.util.spec_from_file_location(
            name, os.path.join(_PACKAGE_DIR, "__init__.py"), submodule_search_locations=[_PACKAGE_DIR]
        )


def _simulated_module() -> ModuleType | None:
    module = sys.modules.get(_NAME)
    return module if module is not None and vars(module).get("__simulated__") is True else None


def install() -> None:
    """Make `import torch_musa` find the simulated package. Doing it twice is doing it once.

    Raises RuntimeError when a real torch_musa is imported already, or installed in this environment: the
    real package would win, and a program would believe it runs on the simulator.
    """
    if is_installed():
        return
    if _NAME in sys.modules:
        origin = vars(sys.modules[_NAME]).get("__file__", "an unknown place") if sys.modules[_NAME] else "None"
        raise RuntimeError(
            f"cannot simulate a MUSA device: a torch_musa is already imported, from {origin}. "
            "Install the simulator before anything imports torch_musa, or use another environment."
        )
    real = importlib.machinery.PathFinder.find_spec(_NAME)
    if real is not None:
        raise RuntimeError(
            f"cannot simulate a MUSA device: a torch_musa is installed in this environment ({real.origin}) and "
            "would be imported instead. Use an environment without torch_musa, or leave simulation off."
        )
    # Last, so that every other finder keeps its say; none of them knows the name.
    sys.meta_path.append(_Finder)


def uninstall() -> None:
    """Take the finder back. Possible only while torch_musa is not imported: a backend cannot be unloaded.

    Raises RuntimeError when the simulated torch_musa has been imported.
    """
    if _simulated_module() is not None:
        raise RuntimeError(
            "the simulated torch_musa is imported and a torch backend cannot be unloaded: start a new process"
        )
    while _Finder in sys.meta_path:
        sys.meta_path.remove(_Finder)


def is_installed() -> bool:
    """True when `import torch_musa` finds (or has found) the simulated package."""
    return _Finder in sys.meta_path or _simulated_module() is not None


def prepare() -> None:
    """Build the backend unless that has been done. Imports nothing of torch.

    Raises build.SimulatorBuildError, whose text says what to install or to change.
    """
    from . import build

    build.ensure()


def _backend() -> ModuleType | None:
    module = _simulated_module()
    return vars(module).get("_MUSAC") if module is not None else None


def counters() -> dict[str, int]:
    """What the simulated device has counted so far in this process; empty while torch_musa is not imported.

    - `kernel_launches`: operators the host launched one by one; work inside a replayed graph is not counted.
    - `host_syncs`: how often the host waited, or would have waited, for the device: `item()`, `synchronize()`,
      copies to or from host memory without `non_blocking`, operators whose output shape depends on data.
    - `host_to_device`, `device_to_host`, `device_to_device` and the same with `_bytes`: copies and their size.
    - `graph_launches`: replays of graphs. `graph_executables`: instantiated graphs that are alive now;
      `graph_executables_cut_off`: those that were destroyed while they had work in flight.
    """
    backend = _backend()
    return {} if backend is None else dict(backend._sim_counters())


def reset_counters() -> None:
    """Start all counters from 0, except `graph_executables`, which says how many there are."""
    backend = _backend()
    if backend is not None:
        backend._sim_reset_counters()


def info() -> dict[str, Any]:
    """State of the simulator: imports and builds nothing.

    - `installed`, `imported`: whether `import torch_musa` finds the simulated package, and has done so.
    - `torch`, `torch_musa`: versions of what is imported; None when it is not.
    - `devices`: how many; from TORCHADA_SIM_DEVICES until the backend is loaded (None for a wrong value).
    - `device`: name, capability, architecture, memory_bytes and multiprocessors of device 0; None until it is
      initialised. `name` and `memory_bytes` of it stand by themselves as well.
    - `profile`: the version of torch_musa that is chosen: key, version, musa, torch. `defects`: names of those shown.
    - `built`: whether the backend is compiled for the installed torch; None without torch. `library`, `cache`: where.
    - `knobs`: every environment variable of the simulator with its value or None.

    Raises ValueError for a wrong TORCHADA_SIM_TORCH_MUSA or TORCHADA_SIM_DEFECTS.
    """
    from . import build, knobs, profiles

    torch = sys.modules.get("torch")
    module = _simulated_module()
    backend = _backend()
    profile = profiles.chosen()
    result: dict[str, Any] = {
        "installed": is_installed(),
        "imported": module is not None,
        "torch": getattr(torch, "__version__", None) and str(torch.__version__),  # type: ignore[union-attr]
        "torch_musa": getattr(module, "__version__", None),
        "devices": None,
        "device": None,
        "name": None,
        "memory_bytes": None,
        "profile": {"key": profile.key, "version": profile.version, "musa": profile.musa, "torch": profile.torch},
        "defects": sorted(profiles.active_defects()),
        "built": None,
        "library": None,
        "cache": str(build.cache_dir()),
        "knobs": knobs.values(),
    }
    try:
        library = build.library_path()
    except build.SimulatorBuildError:
        pass  # no torch: nothing to build for
    else:
        result.update(library=str(library), built=backend is not None or library.is_file())
    if backend is None:
        text = os.environ.get("TORCHADA_SIM_DEVICES", "").strip() or "2"
        result["devices"] = int(text) if text.isascii() and text.isdigit() and int(text) <= 16 else None
        return result
    result["devices"] = int(backend._musa_getDeviceCount())
    describe = vars(module).get("_get_device_properties")  # bound when the backend initialises
    if describe is not None:
        found = describe(0)
        result.update(name=found.name, memory_bytes=found.total_memory)
        result["device"] = {
            "name": found.name,
            "capability": [found.major, found.minor],
            "architecture": f"mp_{found.major}{found.minor}",
            "memory_bytes": found.total_memory,
            "multiprocessors": found.multi_processor_count,
        }
    return result
