"""What a row is: mirrors, rules, actions, gates, facts and the table that holds them.

A ``Rule`` says *at* which place torchada *does* what, *when*, and *why*. Everything else (documentation, reports,
tests) is derived from the rows. This module imports no torch.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from .errors import TableError
from .version import compare

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off", ""})


# ---------------------------------------------------------------- actions
@dataclass(frozen=True)
class Native:
    """Keep torch's own object."""


@dataclass(frozen=True)
class Forward:
    """The object found at *path* under the mirror's peer; ``module:qualname`` names any other module.

    A path that ends in ``:`` or ``.`` means the rule's own name at that place.
    """

    path: str


@dataclass(frozen=True)
class Wrap:
    """What ``shim(native, peer)`` returns; ``native`` or ``peer`` is None where that side lacks the name."""

    shim: str


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
    called as ``shim(original, *args, **kwargs)``; with ``if_keyword`` only when that keyword is passed. ``getter``
    names a second property that is asked where the first one is False (a device counts as whether it is a MUSA
    device), ``cache`` a shim that returns ready answers of a constructor by its string argument.
    """

    keywords: tuple[str, ...] = ()
    positions: tuple[int, ...] = ()
    shim: str = ""
    if_keyword: str = ""
    getter: str = ""
    cache: str = ""


@dataclass(frozen=True)
class Install:
    """Something torch has a registration call for: ``shim()`` registers and returns the function that undoes it."""

    shim: str


Action = Native | Forward | Wrap | Stub | Compute | Rehost | Refuse | Detour | Install
LAZY = (Native, Forward, Wrap, Stub, Compute, Rehost, Refuse)
PATCH = (Wrap, Stub, Detour, Install)


# ---------------------------------------------------------------- facts and gates
@dataclass(frozen=True)
class Facts:
    """A frozen picture of what gates ask for: plain data, so that tests can invent any machine."""

    platform: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, bool] = field(default_factory=dict)
    late: bool = False
    """True when torch was imported before torchada was activated."""


Probe = Callable[[str], bool | None]
_VERSION = re.compile(r"^(torch|torch_musa|python|triton)\s*(<=|>=|==|!=|<|>)\s*(\S+)$")
_WORD = re.compile(r"^(not\s+)?(env|has):([\w.]+)$")


@dataclass(frozen=True)
class Gate:
    """A printable predicate over facts. Clauses are separated by ``;`` and all of them must hold.

    ``torch >= 2.9``, ``torch_musa < 2.13.0``, ``env:NAME`` (true words only), ``not env:NAME``,
    ``has:torch.accelerator``, ``not has:...``, ``late``, ``not late``, ``probe shim:function``.
    """

    text: str

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text.split(";") if part.strip())

    def validate(self) -> None:
        """Raise TableError for a clause that is not in the language."""
        for clause in self.clauses:
            known = (
                clause in ("late", "not late")
                or _VERSION.match(clause)
                or _WORD.match(clause)
                or re.match(r"^probe [\w.]+:\w+$", clause)
            )
            if not known:
                raise TableError(f"gate clause {clause!r} is not understood (in {self.text!r})")

    def features(self) -> Iterator[str]:
        for clause in self.clauses:
            match = _WORD.match(clause)
            if match and match.group(2) == "has":
                yield match.group(3)

    def switches(self) -> Iterator[str]:
        """torchada's own environment variables that the gate asks for."""
        yield from re.findall(r"\benv:(TORCHADA_\w+)", self.text)

    def failing(self, facts: Facts, probe: Probe | None = None) -> str | None:
        """The first clause that does not hold, or None when all do. A probe that cannot tell counts as holding."""
        for clause in self.clauses:
            if not _holds(clause, facts, probe):
                return clause
        return None


def _holds(clause: str, facts: Facts, probe: Probe | None) -> bool:
    if clause in ("late", "not late"):
        return facts.late is (clause == "late")
    match = _VERSION.match(clause)
    if match:
        name, operator, bound = match.groups()
        return compare(facts.versions.get(name), operator, bound)
    match = _WORD.match(clause)
    if match:
        negated, kind, name = match.groups()
        value = (
            facts.env.get(name, "").strip().lower() in TRUE_WORDS if kind == "env" else facts.features.get(name, False)
        )
        return value is not bool(negated)
    if probe is None:
        return True
    return probe(clause.removeprefix("probe ")) is not False


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
    def gate(self) -> Gate:
        return Gate(self.when)


def each(module: str, names: str, do: Action, *, why: str, test: str, when: str = "") -> tuple[Rule, ...]:
    """The same decision for several names of one module (whitespace separated): a row each."""
    return tuple(Rule(f"{module}:{name}", do, why=why, test=test, when=when) for name in names.split())


class Table:
    """All mirrors and rules, indexed. ``validate()`` is for tests and ``report``; building one checks nothing."""

    def __init__(self, mirrors: Iterable[Mirror], rules: Iterable[Rule]) -> None:
        self.mirrors: dict[str, Mirror] = {mirror.name: mirror for mirror in mirrors}
        self.rules: tuple[Rule, ...] = tuple(rules)
        self.lazy: dict[str, dict[str, list[Rule]]] = {name: {} for name in self.mirrors}
        self.patches: dict[str, list[Rule]] = {}
        for rule in self.rules:
            if rule.module in self.mirrors and not isinstance(rule.do, (Detour, Install)):
                self.lazy[rule.module].setdefault(rule.name, []).append(rule)
            else:
                self.patches.setdefault(rule.module, []).append(rule)

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
            if not rule.module or not rule.name or not rule.why.strip() or not rule.test.strip():
                raise TableError(f"{where} needs at='module:qualname', why and test")
            rule.gate.validate()
            lazy = rule.module in self.mirrors and not isinstance(rule.do, (Detour, Install))
            if not isinstance(rule.do, LAZY if lazy else PATCH):
                raise TableError(f"{where}: {type(rule.do).__name__} does not fit a {'lazy' if lazy else 'patch'} rule")
            if lazy and "." in rule.name:
                raise TableError(f"{where}: a lazy rule names an attribute of its module, not of a class in it")


def load_table() -> Table:
    """The product's table: every module of ``torchada.tables``."""
    from .tables import MIRRORS, RULES

    return Table(MIRRORS, RULES)
