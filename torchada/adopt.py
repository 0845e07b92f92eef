"""Late activation: torch was imported first, so references to its modules are spread already."""

from __future__ import annotations

import sys
import types
from collections.abc import Mapping
from typing import TYPE_CHECKING

from .errors import tell

if TYPE_CHECKING:
    from .engine import Engine
    from .virtual import Virtual

OWN_PACKAGES = ("torch", "torch_musa")


def _inside_torch(name: str) -> bool:
    return name.partition(".")[0] in OWN_PACKAGES


def adopt(engine: Engine) -> None:
    """Put virtual modules around the native ones that are loaded already."""
    for name in engine.table.mirrors:
        native = sys.modules.get(name)
        if type(native) is types.ModuleType and name not in engine.virtuals:
            public = types.ModuleType(name)
            vars(public).update({key: vars(native)[key] for key in ("__spec__", "__loader__") if key in vars(native)})
            virtual = engine.add_virtual(public, native)
            virtual.furnish()
            virtual.describe()
    replace_references({id(virtual.native): virtual.module for virtual in engine.virtuals.values()})


def replace_references(swaps: Mapping[int, types.ModuleType]) -> None:
    """Put the swapped module wherever torch itself holds the old one: sys.modules, parents, imports by name.

    Users' globals are never rewritten. Dicts are read, never ``getattr``: a lazy module may raise anything.
    """
    for name, module in list(sys.modules.items()):
        if id(module) in swaps:
            sys.modules[name] = swaps[id(module)]
    for name, module in list(sys.modules.items()):
        if _inside_torch(name) and isinstance(module, types.ModuleType):
            for attribute, value in list(vars(module).items()):
                if id(value) in swaps and isinstance(value, types.ModuleType):
                    vars(module)[attribute] = swaps[id(value)]
    for module in swaps.values():
        for attribute, value in list(vars(module).items()):
            if id(value) in swaps and isinstance(value, types.ModuleType):
                vars(module)[attribute] = swaps[id(value)]


def stale_snapshots(virtuals: Mapping[str, Virtual]) -> list[str]:
    """``module.name`` of every user's global that still is a native object although the virtual one differs."""
    natives = {id(value): (virtual, name) for virtual in virtuals.values() for name, value in _own_names(virtual)}
    natives |= {id(virtual.native): (virtual, "") for virtual in virtuals.values()}
    found = []
    for name, module in list(sys.modules.items()):
        if _inside_torch(name) or name.partition(".")[0] == "torchada" or not isinstance(module, types.ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            virtual, native_name = natives.get(id(value), (None, ""))
            if virtual is not None and (not native_name or virtual.differs(native_name, value)):
                found.append(f"{name}.{attribute}")
    return found


def _own_names(virtual: Virtual) -> list[tuple[str, object]]:
    """Functions and classes the native module defines itself."""
    return [
        (name, value)
        for name, value in vars(virtual.native).items()
        if isinstance(value, (types.FunctionType, type)) and value.__module__ == virtual.name
    ]


def warn_of_stale(virtuals: Mapping[str, Virtual]) -> None:
    """Tell which of the user's names were imported too early. Nothing is rewritten."""
    names = stale_snapshots(virtuals)
    if names:
        shown = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
        tell(
            f"imported from torch.cuda before torchada was active, so still torch's own: {shown}. "
            "Activate torchada before these imports (first line of the program, `python -m torchada`, or the .pth)."
        )
