"""Late activation: torch was imported first, so references to its modules are spread already."""

from __future__ import annotations

import functools
import gc
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from .errors import tell
from .virtual import MISSING

if TYPE_CHECKING:
    from .engine import Engine
    from .virtual import Virtual

OWN_PACKAGES = ("torch", "torch_musa")
# Not imported by `import torch`: had torchada been first, their tables would hold the virtual objects.
SNAPSHOT_PACKAGES = ("torch._dynamo", "torch._inductor")


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
    replace_references({id(virtual.native): virtual.module for virtual in list(engine.virtuals.values())})
    if not engine.late:
        engine.undo_start.append(when_imported(sys.modules["torch"], engine.ready))


def when_imported(module: types.ModuleType, then: Callable[[], object]) -> Callable[[], None]:
    """Call *then* when the import of *module*, which is under way, is over; returns what calls that off.

    importlib says it in the module's spec and nowhere else, so the spec has a class of its own until then.
    """
    spec: Any = module.__spec__
    kind: Any = type(spec)

    def stop() -> None:
        spec.__class__ = kind

    def note(spec: Any, name: str, value: object) -> None:
        kind.__setattr__(spec, name, value)
        if name == "_initializing" and not value:
            stop()
            then()

    spec.__class__ = type(kind.__name__, (kind,), {"__setattr__": note})
    if not spec._initializing:  # another thread has just come to its end
        stop()
    return stop


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
    natives = {id(value): (virtual, name) for virtual in list(virtuals.values()) for name, value in _own_names(virtual)}
    natives |= {id(virtual.native): (virtual, "") for virtual in list(virtuals.values())}
    found = []
    # Each module once: multiprocessing gives __main__ a second name.
    for name, module in {id(module): (name, module) for name, module in reversed(list(sys.modules.items()))}.values():
        if _inside_torch(name) or name.partition(".")[0] == "torchada" or not isinstance(module, types.ModuleType):
            continue
        for attribute, value in list(vars(module).items()):
            virtual, native_name = natives.get(id(value), (None, ""))
            if virtual is not None and (not native_name or virtual.differs(native_name, value)):
                found.append(f"{name}.{attribute}")
    return found


def swap_snapshots(virtuals: Mapping[str, Virtual]) -> Callable[[], None]:
    """Put the virtual objects where Dynamo and inductor took native ones: globals, tables, class attributes.

    Returns what puts the native ones back.
    """
    swaps: dict[int, tuple[Any, Any]] = {}
    for virtual in list(virtuals.values()):
        for name, native in _own_names(virtual):
            answer = virtual.answer(name)
            if answer is not native and answer is not MISSING:
                swaps[id(native)] = (native, answer)
    _swap_all(swaps)
    return lambda: _swap_all({id(answer): (answer, native) for native, answer in swaps.values()})


def _swap_all(swaps: Mapping[int, tuple[Any, Any]]) -> None:
    def swapped(value: Any) -> Any:
        if isinstance(value, staticmethod):
            return staticmethod(swapped(value.__func__)) if id(value.__func__) in swaps else value
        return swaps[id(value)][1] if id(value) in swaps else value

    for holder in _snapshot_holders():
        for name, value in list(vars(holder).items()):
            if isinstance(value, functools._lru_cache_wrapper):
                if _remembers(value):
                    value.cache_clear()
            elif type(value) is dict:
                # A table may hold both objects as keys (torch_musa adds its own): then each keeps its entry.
                keys = {key: key if swapped(key) in value else swapped(key) for key in value}
                content = {keys[key]: swapped(item) for key, item in value.items()}
                if any(new is not old for new, old in zip(_flat(content), _flat(value), strict=True)):
                    value.clear()
                    value.update(content)
            elif type(value) is list:
                value[:] = map(swapped, value)
            elif type(value) is set:
                for item in [item for item in value if swapped(item) is not item]:
                    value.remove(item)
                    value.add(swapped(item))
            elif swapped(value) is not value:
                setattr(holder, name, swapped(value))


def _remembers(cached: Any) -> bool:
    """Whether the cached function has given a value. One that gives none is called for its effect, and only once:
    inductor registers its patterns so, and refuses to do it twice."""
    cache = [each for each in gc.get_referents(cached) if type(each) is dict and each is not vars(cached)]
    return any(result is not None for results in cache for result in results.values())


def _flat(mapping: Mapping[Any, Any]) -> Iterator[Any]:
    for pair in mapping.items():
        yield from pair


def _snapshot_holders() -> Iterator[Any]:
    """The modules of the snapshot packages and the classes they define."""
    for name, module in list(sys.modules.items()):
        if name.startswith(SNAPSHOT_PACKAGES) and isinstance(module, types.ModuleType):
            yield module
            for value in list(vars(module).values()):
                if isinstance(value, type) and value.__module__ == name:
                    yield value


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
