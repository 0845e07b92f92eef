"""Modules that CUDA programs import and a MUSA package answers: ``sgl_kernel.flash_attn``, ``pynvml`` ...

A row says which (``Provide``). Where the MUSA package is not installed nothing is answered and nothing is invented.
"""

from __future__ import annotations

import importlib
import sys
import types
from collections.abc import Callable, Sequence
from importlib import metadata
from importlib.abc import Loader
from importlib.machinery import ModuleSpec
from typing import TYPE_CHECKING

from .ledger import ACTIVE
from .rules import Provide, Rule, Table
from .virtual import load_shim

if TYPE_CHECKING:
    from .engine import Engine

Search = Callable[..., ModuleSpec | None]


def provided(table: Table) -> dict[str, Rule]:
    """Module name -> the row that provides it, or a module below it."""
    found: dict[str, Rule] = {}
    for name, rule in table.provided.items():
        found[name] = rule
        parent = name.rpartition(".")[0]
        if parent:
            found[parent] = rule
    return found


def find(engine: Engine, rule: Rule, name: str, path: Sequence[str] | None, search: Search) -> ModuleSpec | None:
    """The spec of a provided module, or of the package it lies in where there is none. *search* asks other finders."""
    action = rule.do
    assert isinstance(action, Provide)
    if not _is_there(action, search):
        return None
    if name == rule.provides:
        return ModuleSpec(name, ProvidedLoader(engine, rule), origin=action.peer)
    spec = search(name, path, None)
    if spec is None:
        spec = ModuleSpec(name, None, is_package=True)  # importlib makes an empty namespace package of it
    return spec


def _is_there(action: Provide, search: Search) -> bool:
    if action.distribution:
        try:
            metadata.version(action.distribution)
        except metadata.PackageNotFoundError:
            return False
    return sys.modules.get(action.peer) is not None or search(action.peer, None, None) is not None


class ProvidedLoader(Loader):
    """Puts the MUSA module where the CUDA one was asked for."""

    def __init__(self, engine: Engine, rule: Rule) -> None:
        self._engine = engine
        self._rule = rule

    def create_module(self, spec: ModuleSpec) -> None:
        return None

    def exec_module(self, module: types.ModuleType) -> None:
        action = self._rule.do
        assert isinstance(action, Provide)
        name = module.__name__
        peer = importlib.import_module(action.peer)
        if action.shim:
            load_shim(action.shim)(module, peer)
            answer = module
        else:
            answer = peer
        sys.modules[name] = answer

        def undo() -> None:
            if sys.modules.get(name) is answer:
                del sys.modules[name]
            above, _, child = name.rpartition(".")
            parent = sys.modules.get(above)
            if parent is not None and vars(parent).get(child) is answer:
                delattr(parent, child)

        self._engine.ledger.add(self._rule.id, ACTIVE, f"answered by {action.peer}", undo=undo)
