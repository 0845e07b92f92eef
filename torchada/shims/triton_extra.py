"""``triton.language.extra.cuda`` in a Triton that was built for MUSA: the module ``extra.musa``."""

from __future__ import annotations

import importlib
import importlib.util
import sys
import types
from collections.abc import Callable
from typing import Any

from ..errors import NotOnMusa
from .cuda_members import put

Undo = Callable[[], None]
EXTRA = "triton.language.extra"
DEPENDENT_LAUNCH = ("gdc_wait", "gdc_launch_dependents")


def cuda() -> Undo:
    """Let ``extra.cuda``, the attribute and the module, be ``extra.musa``. AttributeError where Triton has no such."""
    extra = sys.modules[EXTRA]
    if f"{EXTRA}.musa" not in sys.modules and importlib.util.find_spec(f"{EXTRA}.musa") is None:
        raise AttributeError("this Triton was not built for MUSA: it has no triton.language.extra.musa")
    musa = importlib.import_module(f"{EXTRA}.musa")
    undos = [put(musa, name, _dependent_launch(name)) for name in DEPENDENT_LAUNCH if name not in vars(musa)]
    news = {
        name.replace(f"{EXTRA}.musa", f"{EXTRA}.cuda", 1): module
        for name, module in list(sys.modules.items())
        if name == f"{EXTRA}.musa" or name.startswith(f"{EXTRA}.musa.")
    }
    before = {name: sys.modules.get(name) for name in news}
    attribute = vars(extra).get("cuda")
    sys.modules.update(news)
    vars(extra)["cuda"] = musa

    def undo() -> None:
        for undo_one in undos:
            undo_one()
        for name, module in news.items():
            _restore(sys.modules, name, module, before[name])
        _restore(vars(extra), "cuda", musa, attribute)

    return undo


def _restore(owner: dict[str, Any], name: str, ours: types.ModuleType, before: types.ModuleType | None) -> None:
    if owner.get(name) is ours:
        if before is None:
            del owner[name]
        else:
            owner[name] = before


def _dependent_launch(name: str) -> Callable[..., Any]:
    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise NotOnMusa(
            f"triton.language.extra.cuda.{name}",
            "programmatic dependent launch is a feature of NVIDIA's Hopper and later.",
            "launch the kernels one after the other, without launch_pdl.",
        )

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
