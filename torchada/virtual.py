"""One virtual module: how a name of a mirrored module is answered.

The public object is an exact ``ModuleType`` with ``__getattr__`` and ``__dir__`` in its dict (PEP 562); the native
module lives in a second, private object that is never written to.
"""

from __future__ import annotations

import importlib
import sys
import types
from functools import lru_cache, partial, update_wrapper
from typing import TYPE_CHECKING, Any

from .errors import NotOnMusa, TorchadaError
from .ledger import ACTIVE, FAILED
from .rehost import rehost
from .rules import Compute, Forward, Mirror, Native, Refuse, Rehost, Rule, Stub, Wrap

if TYPE_CHECKING:
    from .engine import Engine

MISSING: Any = object()
# Functions, classes and modules keep their identity over time; anything else may be state and is asked for afresh.
KEPT_TYPES = (types.FunctionType, types.BuiltinFunctionType, type, types.ModuleType, type(lru_cache(len)))
MIRRORED_DUNDERS = ("__doc__", "__all__", "__file__", "__path__", "__cached__", "__package__", "__builtins__")


def load_shim(path: str) -> Any:
    """``"area:name"`` -> the object *name* of ``torchada.shims.area``."""
    module, _, name = path.partition(":")
    return getattr(importlib.import_module(f"torchada.shims.{module}"), name)


def probe(path: str) -> bool | None:
    """What the probe of a gate says; None where it cannot tell."""
    return load_shim(path)()  # type: ignore[no-any-return]


class Virtual:
    """The public module, the native one behind it, and what we put into the public one's dict."""

    def __init__(self, engine: Engine, mirror: Mirror, module: types.ModuleType, native: types.ModuleType) -> None:
        self.engine = engine
        self.mirror = mirror
        self.name = mirror.name
        self.module = module
        self.native = native
        self.kept: dict[str, Any] = {}
        self.resolving: set[str] = set()
        self.state_names: frozenset[str] | None = None

    # -- life ------------------------------------------------------------------------------------------------------
    def furnish(self) -> None:
        """Make the public module answer; called before the native code runs, since that code imports itself."""
        self.keep("__getattr__", self.resolve)
        self.keep("__dir__", self.names)

    def describe(self) -> None:
        """Take over what the native module says of itself; called when its code has run."""
        for name in MIRRORED_DUNDERS:
            if name in vars(self.native):
                vars(self.module)[name] = vars(self.native)[name]

    def keep(self, name: str, value: Any) -> Any:
        """Put *value* into the public dict; the first writer wins, so that identity holds across threads."""
        winner = vars(self.module).setdefault(name, value)
        if winner is value:
            self.kept[name] = value
        return winner

    def forget(self) -> None:
        """Take our objects out again and give the native module what others wrote into the public one."""
        public = vars(self.module)
        native = vars(self.native)
        for name, value in list(public.items()):
            ours = name in self.kept and self.kept[name] is value
            if not ours and not (name.startswith("__") and name.endswith("__")) and native.get(name) is not value:
                child = self.engine.virtual_of(value)
                native[name] = child.native if child else value
        for name, value in self.kept.items():
            if name not in ("__getattr__", "__dir__") and public.get(name) is value:
                del public[name]
        self.kept = {name: self.kept[name] for name in ("__getattr__", "__dir__") if name in self.kept}

    # -- answers ---------------------------------------------------------------------------------------------------
    def names(self) -> list[str]:
        """What ``dir()`` shows: the native names, and what others wrote into the public module."""
        ours = {"__getattr__", "__dir__"}
        public = set(vars(self.module)) - ours
        hidden = {
            name
            for name, rules in self.engine.table.lazy.get(self.name, {}).items()
            if any(isinstance(rule.do, Refuse) and rule.do.absent and self.engine.is_open(rule) for rule in rules)
        }
        return sorted((public | set(dir(self.native))) - hidden)

    def resolve(self, name: str) -> Any:
        """Answer ``module.name``. Raises AttributeError as a module does."""
        if not self.engine.armed():
            if name == "__all__" and name not in vars(self.native):
                raise AttributeError(name)
            return getattr(self.native, name)
        if name.startswith("__") and name.endswith("__"):
            return self._dunder(name)
        child = sys.modules.get(f"{self.name}.{name}")
        if child is not None:
            return self.keep(name, child)
        native = self._native(name)
        if native is MISSING:
            raise AttributeError(f"module {self.name!r} has no attribute {name!r}", name=name, obj=self.module)
        rule = self.engine.open_rule(self.name, name)
        if rule is not None:
            return self._perform(rule, name, native)
        peer = MISSING if isinstance(native, types.ModuleType) else self.peer(name)
        return self._settle(name, native if peer is MISSING else peer)

    def differs(self, name: str, native: Any) -> bool:
        """Whether the public answer for *name* is another object than *native* (a refused one is)."""
        return self.answer(name) is not native

    def answer(self, name: str) -> Any:
        """As resolve(), for looking around: MISSING where the name is refused or its rule fails (told by the ledger,
        and by the error of whoever asks for the name)."""
        try:
            return self.resolve(name)
        except Exception:
            return MISSING

    def _native(self, name: str) -> Any:
        try:
            return getattr(self.native, name)
        except AttributeError:
            return MISSING

    def _dunder(self, name: str) -> Any:
        if name == "__all__" and name not in vars(self.native):
            # A star import of a module without __all__ reads its dict, which holds only what was asked for before.
            return [public for public in self.names() if not public.startswith("_")]
        return getattr(self.native, name)

    def peer(self, path: str) -> Any:
        """The object at *path* under the mirror's peer, or MISSING."""
        if self.mirror.peer is None:
            return MISSING
        value: Any = importlib.import_module(self.mirror.peer)
        for part in path.split("."):
            value = getattr(value, part, MISSING)
            if value is MISSING:
                break
        return value

    def _settle(self, name: str, value: Any) -> Any:
        return self.keep(name, value) if isinstance(value, KEPT_TYPES) else value

    def _perform(self, rule: Rule, name: str, native: Any) -> Any:
        try:
            value = self._value(rule, name, native)
        except NotOnMusa:
            raise
        except Exception as error:
            self.engine.ledger.add(rule.id, FAILED, f"{type(error).__name__}: {error}", error=error)
            if self.engine.strict:
                raise
            text = f"torchada rule {rule.id!r} failed: {type(error).__name__}: {error}"
            raise AttributeError(text, name=name, obj=self.module) from error
        self.engine.ledger.add(rule.id, ACTIVE)
        return value if isinstance(rule.do, Compute) else self._settle(name, value)

    def _value(self, rule: Rule, name: str, native: Any) -> Any:
        action = rule.do
        if isinstance(action, Native):
            return native
        if isinstance(action, Forward):
            # A path that ends in a separator means the rule's own name at that place.
            return self._forward(action.path + name if action.path[-1] in ":." else action.path)
        if isinstance(action, Wrap):
            peer = self.peer(name)
            return load_shim(action.shim)(native, None if peer is MISSING else peer)
        if isinstance(action, Stub):
            return load_shim(action.shim)
        if isinstance(action, Compute):
            return load_shim(action.shim)()
        if isinstance(action, Rehost):
            return rehost(native, self)
        if isinstance(action, Refuse):
            return refused(f"{self.name}.{name}", native, action)
        raise TypeError(f"{type(action).__name__} is no answer to an attribute access")

    def _forward(self, path: str) -> Any:
        if ":" not in path:
            value = self.peer(path)
            if value is MISSING:
                raise TorchadaError(f"{self.mirror.peer} has no {path}")
            return value
        return look_up(path)


def look_up(path: str) -> Any:
    """The object at ``module:qualname``."""
    module, _, qualname = path.partition(":")
    value: Any = importlib.import_module(module)
    for part in qualname.split("."):
        value = getattr(value, part)
    return value


def refused(api: str, native: Any, action: Refuse) -> Any:
    """An object that stands where *native* stood and raises NotOnMusa when it is used."""
    error = partial(NotOnMusa, api, action.reason, action.instead)
    if action.absent:
        raise error()

    def refuse(*args: Any, **kwargs: Any) -> Any:
        raise error()

    if isinstance(native, type):
        static = {name: staticmethod(refuse) for name, value in vars(native).items() if isinstance(value, staticmethod)}
        namespace = static | {"__new__": refuse, "__module__": native.__module__, "__doc__": str(error())}
        return type(native.__name__, (), namespace)
    refuse.__name__ = refuse.__qualname__ = api.rpartition(".")[2]
    refuse.__module__ = api.rpartition(".")[0]
    if callable(native):
        update_wrapper(refuse, native)  # name and signature are torch's
    refuse.__doc__ = str(error())
    return refuse
