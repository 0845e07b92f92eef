"""The one meta-path entry, and the loaders it puts around those of the finders after it."""

from __future__ import annotations

import importlib.util
import sys
import threading
import types
from collections.abc import Sequence
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING, Any

import wrapt

from . import providers, simulator
from .rules import Rule

if TYPE_CHECKING:
    from .engine import Engine

MIRRORED = "mirrored"
WATCHED = "watched"


class Finder:
    """Answers for the modules in ``kinds`` only; every other import costs one dict look-up."""

    def __init__(self, engine: Engine, kinds: dict[str, str | Rule]) -> None:
        self.engine = engine
        self.kinds = kinds
        self._busy = threading.local()

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: types.ModuleType | None = None
    ) -> ModuleSpec | None:
        kind = self.kinds.get(name)
        if kind is None:
            return None
        return self._find(kind, name, path, target)

    def _find(
        self, kind: str | Rule, name: str, path: Sequence[str] | None, target: types.ModuleType | None
    ) -> ModuleSpec | None:
        busy = vars(self._busy).setdefault("names", set())
        if name in busy:  # a finder after us that starts the search anew
            return None
        busy.add(name)
        try:
            if isinstance(kind, Rule):
                return providers.find(self.engine, kind, name, path, self._ask_others)
            spec = self._ask_others(name, path, target)
            if spec is not None and spec.loader is None:  # a namespace package: there is nothing to execute
                with self.engine.importing(name):
                    return spec
        finally:
            busy.discard(name)
        if spec is not None and hasattr(spec.loader, "exec_module"):
            around: Any = VirtualLoader if kind == MIRRORED else WatchLoader
            spec.loader = around(spec.loader, self.engine)
        return spec

    def _ask_others(self, name: str, path: Sequence[str] | None, target: types.ModuleType | None) -> ModuleSpec | None:
        finders = list(sys.meta_path)
        after = finders.index(self) + 1 if self in finders else 0
        for finder in finders[after:]:
            find = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find(name, path, target) if find else None
            if spec is not None:
                return spec
        return None


class _AroundLoader(wrapt.ObjectProxy):  # type: ignore[misc]
    """The original loader to look at; only the execution of the module goes through us."""

    def __init__(self, loader: Any, engine: Engine) -> None:
        super().__init__(loader)
        self._self_engine = engine

    def _self_step_aside(self, module: types.ModuleType) -> None:
        """Let the module show the loader it has without us."""
        loader = self.__wrapped__
        module.__loader__ = loader
        if module.__spec__ is not None:
            module.__spec__.loader = loader


class WatchLoader(_AroundLoader):
    """Tells the engine when a module has been executed."""

    def exec_module(self, module: types.ModuleType) -> None:
        self._self_step_aside(module)
        if module.__name__ == "torch" and simulator.is_installed():
            simulator.prepare()  # may fail or be interrupted: torch itself cannot be executed a second time
        with self._self_engine.importing(module.__name__):
            self.__wrapped__.exec_module(module)
        self._self_engine.module_done(module.__name__)


class VirtualLoader(_AroundLoader):
    """Executes the native code in a private module and lets the public one answer from it."""

    def exec_module(self, module: types.ModuleType) -> None:
        self._self_step_aside(module)
        engine: Engine = self._self_engine
        virtual = engine.virtual_of(module)
        if virtual is None:  # not a reload
            assert module.__spec__ is not None
            # The same spec: importlib marks in it when the import is over.
            virtual = engine.add_virtual(module, importlib.util.module_from_spec(module.__spec__))
        virtual.furnish()
        try:
            self.__wrapped__.exec_module(virtual.native)
        except BaseException:
            engine.drop_virtual(virtual)
            raise
        virtual.describe()
        engine.module_done(module.__name__)
