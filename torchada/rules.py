"""What a row is: mirrors, rules, actions and the table that holds them (gates: ``gates.py``).

A ``Rule`` says *at* which place torchada *does* what, *when*, and *why*. Everything else (documentation, reports,
tests) is derived from the rows. This module imports no torch.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass

from .errors import TableError
from .gates import Gate


# ---------------------------------------------------------------- actions
@dataclass(frozen=True)
class Native:
    """Keep torch's own object."""


@dataclass(frozen=True)
class Forward:
    """The object found at *path* under the mirror's peer; ``module:qualname`` names any other module, and has to where
    no module is mirrored.

    A path that ends in ``:`` or ``.`` means the rule's own name at that place.
    """

    path: str


@dataclass(frozen=True)
class Wrap:
    """What ``shim(native, peer)`` returns; ``native`` or ``peer`` is None where that side lacks the name."""

    shim: str


@dataclass(frozen=True)
class Noop(Wrap):
    """A ``Wrap`` whose answer accepts the call and does nothing, as the documentation says."""


@dataclass(frozen=True)
class Stub:
    """Our own object: the attribute of a shim module itself."""

    shim: str


@dataclass(frozen=True)
class Compute:
    """State that is asked for afresh at each access: what ``shim()`` returns; never kept."""

    shim: str


@dataclass(frozen=True)
class Rehost:
    """torch's own Python function over globals in which its siblings are the virtual ones."""


@dataclass(frozen=True)
class Refuse:
    """Raises ``NotOnMusa`` when called; with ``absent`` already when it is looked up (``hasattr`` is False)."""

    reason: str
    instead: str = ""
    absent: bool = False


@dataclass(frozen=True)
class Detour:
    """Redirect the object itself in place: identity, hash, pickle name and signature stay.

    ``keywords`` and ``positions`` (0-based, ``self`` not counted) hold the device arguments to translate. ``shim`` is
    called as ``shim(original, *args, **kwargs)``; with ``if_keyword`` only when that argument is passed, by its name or
    at ``if_position``. ``getter`` names a second property that is asked where the first one is False (a device counts
    as whether it is a MUSA device), ``cache`` a shim with ready answers of a constructor by its string. ``compares``: a
    Python function compares with the backend's name. ``to_device``: a built-in function is handed the parsed device.
    """

    keywords: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    shim: str = ""
    if_keyword: str = ""
    if_position: int = sys.maxsize
    getter: str = ""
    cache: str = ""
    compares: bool = False
    to_device: bool = False


@dataclass(frozen=True)
class Install:
    """Something torch has a registration call for: ``shim()`` registers and returns the function that undoes it."""

    shim: str


@dataclass(frozen=True)
class Provide:
    """The module is *peer* itself, where that can be imported; with *shim*, a module that ``shim(module, peer)`` fills.

    *distribution* names the installed package that has to be there, where the module's name alone tells too little.
    """

    peer: str
    shim: str = ""
    distribution: str = ""


Action = Native | Forward | Wrap | Stub | Compute | Rehost | Refuse | Detour | Install | Provide
LAZY = (Native, Forward, Wrap, Stub, Compute, Rehost, Refuse, Provide)
PATCH = (Forward, Wrap, Stub, Detour, Install)


# ---------------------------------------------------------------- rows
@dataclass(frozen=True)
class Mirror:
    """The module named *name* is answered from module *peer* of torch_musa (None: torch's own objects and rules)."""

    name: str
    peer: str | None
    why: str


@dataclass(frozen=True)
class Rule:
    """One row: *at* ``"module:qualname"`` *do* an action, *when* a gate holds; *why*; *test* names its test."""

    at: str
    do: Action
    why: str
    test: str
    when: str = ""
    until: str = ""

    @property
    def id(self) -> str:
        return f"{self.at} [{self.when}]" if self.when else self.at

    @property
    def module(self) -> str:
        return self.at.partition(":")[0]

    @property
    def name(self) -> str:
        return self.at.partition(":")[2]

    @property
    def provides(self) -> str:
        """The full name of the module a ``Provide`` rule answers."""
        return f"{self.module}.{self.name}" if self.module else self.name

    @property
    def gate(self) -> Gate:
        return Gate(self.when)


@dataclass(frozen=True)
class Masquerade:
    """One published package in whose *modules* (and all below them) a MUSA device answers as a CUDA device: tried with
    *versions* (a specifier, as pip writes them) of the distribution *package*; *why*; *test* names its test."""

    package: str
    versions: str
    modules: tuple[str, ...]
    why: str
    test: str

    @property
    def root(self) -> str:
        return self.modules[0].partition(".")[0]


def each(
    module: str, names: str, do: Action, *, why: str, test: str, when: str = "", until: str = ""
) -> tuple[Rule, ...]:
    """The same decision for several names of one module (whitespace separated): a row each."""
    return tuple(Rule(f"{module}:{name}", do, why, test, when, until) for name in names.split())


def pairs(module: str, peer: str, names: str, *, why: str, test: str, when: str = "") -> tuple[Rule, ...]:
    """``Forward`` rows from ``name=other`` pairs (whitespace separated): *name* of *module* is *peer* + *other*."""
    split = (pair.split("=") for pair in names.split())
    return tuple(
        Rule(f"{module}:{name}", Forward(peer + other), why=why, test=test, when=when) for name, other in split
    )


class Table:
    """All mirrors and rules, indexed. ``validate()`` is for tests and ``report``; building one checks nothing."""

    def __init__(self, mirrors: Iterable[Mirror], rules: Iterable[Rule]) -> None:
        self.mirrors: dict[str, Mirror] = {mirror.name: mirror for mirror in mirrors}
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.lazy: dict[str, dict[str, list[Rule]]] = {name: {} for name in self.mirrors}
        self.patches: dict[str, list[Rule]] = {}
        self.provided: dict[str, Rule] = {rule.provides: rule for rule in self.rules if isinstance(rule.do, Provide)}
        for rule in self.rules:
            if isinstance(rule.do, Provide):
                continue
            if self.is_lazy(rule):
                self.lazy[rule.module].setdefault(rule.name, []).append(rule)
            else:
                self.patches.setdefault(rule.module, []).append(rule)

    def is_lazy(self, rule: Rule) -> bool:
        """Whether the rule answers a name of a mirrored module, or a module, when that is asked for; else a patch."""
        if isinstance(rule.do, Provide):
            return True
        return rule.module in self.mirrors and not isinstance(rule.do, (Detour, Install))

    def features(self) -> set[str]:
        return {name for rule in self.rules for name in rule.gate.features()}

    def switches(self) -> set[str]:
        return {name for rule in self.rules for name in rule.gate.switches()}

    def validate(self) -> None:
        """Raise TableError for the first row that contradicts the rules of rows."""
        seen: set[str] = set()
        for rule in self.rules:
            where = f"rule {rule.id}"
            if rule.id in seen:
                raise TableError(f"{where} stands twice")
            seen.add(rule.id)
            if (
                not (rule.module or isinstance(rule.do, Provide))
                or not rule.name
                or not rule.why.strip()
                or not rule.test.strip()
            ):
                raise TableError(f"{where} needs at='module:qualname', why and test")
            rule.gate.validate()
            lazy = self.is_lazy(rule)
            if not isinstance(rule.do, LAZY if lazy else PATCH):
                raise TableError(f"{where}: {type(rule.do).__name__} does not fit a {'lazy' if lazy else 'patch'} rule")
            if lazy and "." in rule.name:
                raise TableError(f"{where}: a lazy rule names an attribute of its module, not of a class in it")


def load_table() -> Table:
    """The product's table: every module of ``torchada.tables``."""
    from .tables import MIRRORS, RULES

    return Table(MIRRORS, RULES)
