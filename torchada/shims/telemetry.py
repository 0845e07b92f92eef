"""``pynvml`` and torch.cuda's telemetry over Moore Threads' management library (mthreads-ml-py, module ``pymtml``).

pymtml has NVML's function names on top of MTML; its errors are MTML's classes, and that no library is there it tells by
an OSError.
"""

from __future__ import annotations

import functools
import importlib
import string
import sys
import types
from collections.abc import Callable
from typing import Any

from ..platform import find_module
from ..providers import ProvidedLoader

Undo = Callable[[], None]

ERRORS = """
    UNINITIALIZED INVALID_ARGUMENT NOT_SUPPORTED NO_PERMISSION ALREADY_INITIALIZED NOT_FOUND INSUFFICIENT_SIZE
    INSUFFICIENT_POWER DRIVER_NOT_LOADED TIMEOUT IRQ_ISSUE LIBRARY_NOT_FOUND FUNCTION_NOT_FOUND CORRUPTED_INFOROM
    GPU_IS_LOST RESET_REQUIRED OPERATING_SYSTEM LIB_RM_VERSION_MISMATCH IN_USE MEMORY NO_DATA
    VGPU_ECC_NOT_SUPPORTED INSUFFICIENT_RESOURCES FREQ_NOT_SUPPORTED ARGUMENT_VERSION_MISMATCH DEPRECATED NOT_READY
    GPU_NOT_FOUND INVALID_STATE RESET_TYPE_NOT_SUPPORTED UNKNOWN
"""
"""Names of NVML's errors: ``NVML_ERROR_NAME`` is the code and ``NVMLError_Name`` the class."""


def fill_pynvml(module: types.ModuleType, pymtml: types.ModuleType) -> None:
    """Make *module* what ``import pynvml`` gives on a MUSA machine."""
    base: type = pymtml.MTMLError
    names = vars(module)
    names["__doc__"] = "NVML's Python interface, answered by Moore Threads' pymtml."
    names["NVMLError"] = base
    for error in ERRORS.split():
        class_name = "NVMLError_" + string.capwords(error, "_").replace("_", "")
        names[class_name] = _error_class(pymtml, base, error, class_name)
        code = getattr(pymtml, f"MTML_ERROR_{error}", None)
        if code is not None:
            names[f"NVML_ERROR_{error}"] = code
    for name in ("nvmlInit", "nvmlInitWithFlags"):
        names[name] = _initialiser(getattr(pymtml, name), names["NVMLError_LibraryNotFound"])

    def __getattr__(name: str) -> Any:
        try:
            return getattr(pymtml, name)
        except AttributeError:
            raise AttributeError(
                f"module 'pynvml' has no attribute {name!r} on MUSA: mthreads-ml-py, which answers it here, has none",
                name=name,
                obj=module,
            ) from None

    names["__getattr__"] = __getattr__
    names["__dir__"] = lambda: sorted({*names, *dir(pymtml)})


def _error_class(pymtml: types.ModuleType, base: type, error: str, name: str) -> type:
    """MTML's class for an error of NVML; one that nothing raises where MTML has no such error."""
    code = getattr(pymtml, f"MTML_ERROR_{error}", None)
    found = base._valClassMapping.get(code) if code is not None else None  # type: ignore[attr-defined]
    return found if found is not None else type(name, (base,), {"__module__": "pynvml"})


def _initialiser(original: Callable[..., Any], not_found: type) -> Callable[..., Any]:
    @functools.wraps(original)
    def initialise(*args: Any, **kwargs: Any) -> Any:
        try:
            return original(*args, **kwargs)
        except OSError as error:
            code = getattr(sys.modules[original.__module__], "MTML_ERROR_LIBRARY_NOT_FOUND", 0)
            raise not_found(code) from error

    return initialise


def install() -> Undo:
    """Give torch.cuda the library where torch looked for pynvml before torchada was on.

    Raises AttributeError when there is nothing to do: no mthreads-ml-py, or torch has found it.
    """
    import torch

    from .cuda_members import put

    spec = find_module("pynvml")
    if spec is None or not isinstance(spec.loader, ProvidedLoader):
        raise AttributeError("mthreads-ml-py is not installed")
    before = sys.modules.pop("pynvml", None)
    if before is not None and isinstance(getattr(before.__spec__, "loader", None), ProvidedLoader):
        sys.modules["pynvml"] = before  # it is the one
    library: Any = importlib.import_module("pynvml")
    if getattr(torch.cuda, "pynvml", None) is library:
        raise AttributeError("torch has found it")
    news = {"pynvml": library, "_HAS_PYNVML": True, "_PYNVML_ERR": None}
    undos = [put(torch.cuda, name, value) for name, value in news.items()]

    def undo() -> None:
        for undo_one in undos:
            undo_one()
        if before is not None and before is not library and sys.modules.get("pynvml") in (None, library):
            sys.modules["pynvml"] = before  # type: ignore[assignment]

    return undo
