"""Facts and the printable predicates over them. Imports no torch."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from .errors import TableError
from .version import compare

TRUE_WORDS = frozenset({"1", "true", "yes", "on"})
FALSE_WORDS = frozenset({"0", "false", "no", "off", ""})


@dataclass(frozen=True)
class Facts:
    """A frozen picture of what gates ask for: plain data, so that tests can invent any machine."""

    platform: str
    versions: Mapping[str, str | None] = field(default_factory=dict)
    env: Mapping[str, str] = field(default_factory=dict)
    features: Mapping[str, bool] = field(default_factory=dict)
    late: bool = False
    """True when torch was imported before torchada was activated."""
    masquerade: bool = False
    """True when some module is masqueraded."""


Probe = Callable[[str], bool | None]
_VERSION = re.compile(r"^(torch|torch_musa|python|triton)\s*(<=|>=|==|!=|<|>)\s*(\S+)$")
_WORD = re.compile(r"^(not\s+)?(env|has):([\w.]+)$")


@dataclass(frozen=True)
class Gate:
    """A printable predicate over facts. Clauses are separated by ``;`` and all of them must hold.

    ``torch >= 2.9``, ``torch_musa < 2.13.0``, ``env:NAME`` (true words only), ``not env:NAME``,
    ``has:torch.accelerator``, ``not has:...``, ``late``, ``not late``, ``masquerade``, ``probe shim:function``.
    """

    text: str

    @property
    def clauses(self) -> tuple[str, ...]:
        return tuple(part.strip() for part in self.text.split(";") if part.strip())

    def validate(self) -> None:
        """Raise TableError for a clause that is not in the language."""
        for clause in self.clauses:
            known = (
                clause in ("late", "not late", "masquerade")
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
    if clause == "masquerade":
        return facts.masquerade
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
