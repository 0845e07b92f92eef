"""The symbol tables: which CUDA name is which MUSA name, and how that is known.

`symbols/*.json` are data by library family: ``names``, ``qualified`` and ``headers`` map a CUDA spelling to
``[MUSA spelling, evidence, [repositories whose code shows it]]``, ``unresolved`` holds names that are left alone and
reported, ``unchanged`` names that are the same on both sides. ``_rules.json`` holds the regular rules and their
exceptions, ``_contexts.json`` architecture thresholds, version scales, dispatch keys.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from functools import cached_property, lru_cache
from importlib.resources import files
from typing import Any, NamedTuple

from . import lexer


class Found(NamedTuple):
    """What the tables say of a name: the *new* spelling and its *evidence*, or a *problem* and no new spelling."""

    new: str | None
    evidence: str
    problem: str = ""


PASTED = ("cuda", "CUDA", "cu", "CU", "cublas", "cudnn", "cufft", "curand", "cusparse", "cusolver", "nccl", "nv")
IDENTIFIER = re.compile(r"[^\W\d]\w*")


class Tables:
    """All tables, with the caller's *own* names (whole identifiers) over them."""

    def __init__(self, own: Mapping[str, str] | None = None) -> None:
        """Read the data. ValueError: a name in *own*, or what it becomes, is no identifier."""
        self.own = dict(own or {})
        for name in (*self.own, *self.own.values()):
            if not IDENTIFIER.fullmatch(name):
                raise ValueError(f"a rule must name whole identifiers, not {name!r}")
        self.names: dict[str, list[Any]] = {}
        self.qualified: dict[str, list[Any]] = {}
        self.headers: dict[str, list[Any]] = {}
        self.libraries: dict[str, list[Any]] = {}
        self.unresolved: dict[str, list[Any]] = {}
        self.unchanged: set[str] = set()
        data = {f.name: json.loads(f.read_bytes()) for f in (files(__package__) / "symbols").iterdir()}
        self.flashinfer = data["flashinfer.json"]["edits"]
        rules, self.contexts = data.pop("_rules.json"), data.pop("_contexts.json")
        for family in data.values():
            for section in ("names", "qualified", "headers", "libraries", "unresolved"):
                getattr(self, section).update(family.get(section, {}))
            self.unchanged.update(family.get("unchanged", ()))
        self.names = {**rules["exceptions"], **self.names}
        self.unresolved.update({name: ["no", why] for name, why in self.contexts["unresolved"].items()})
        self.rules = [(re.compile(rule["match"]), rule["to"]) for rule in rules["rules"]]
        self.starts = [rule["match"] for rule in rules["rules"]]
        self.inside = rules["inside"]
        self.not_names = re.compile("|".join(rules["not_names"]))
        self.half = re.compile(rules["half"])
        self.reported = [(re.compile(pattern), why) for pattern, why in self.contexts["unresolved_patterns"]]
        self.reported_headers = re.compile(self.contexts["unresolved_headers"])
        self.find = lru_cache(maxsize=1 << 16)(self._find)
        self.find_header = lru_cache(maxsize=1 << 14)(self._find_header)

    @cached_property
    def scanner(self) -> re.Pattern[str]:
        """The expression that stops wherever the porter may have something to do (see `lexer.scanner`)."""
        from .contexts import WORDS

        starts = [branch for start in self.starts for branch in _branches(start)]
        for pattern, _ in self.reported:
            starts += _branches(pattern.pattern)
        starts.append("CUDA(?=[A-Z][a-z])")  # a name of PyTorch's if it is qualified so
        regular = re.compile("|".join(f"(?:{start})" for start in starts))
        words = {*WORDS, *PASTED, *self.contexts["scales"], *self.contexts["no_ops"], *self.own}
        words |= {name for name in (*self.names, *self.unresolved) if IDENTIFIER.fullmatch(name)}
        words |= {name.rpartition("::")[2] for name in self.qualified}
        return lexer.scanner((word for word in words if not regular.match(word)), starts)

    def _find(self, name: str) -> Found | None:
        """What *name* (one identifier) becomes; None: it is not a CUDA name."""
        if name in self.own:
            return Found(self.own[name], "own rule")
        if name in self.names:
            return Found(self.names[name][0], self.names[name][1])
        if name in self.unchanged:
            return None
        if name in self.unresolved:
            return Found(None, "", self.unresolved[name][1] or "no MUSA spelling has been seen")
        for pattern, why in self.reported:
            if pattern.fullmatch(name):
                return Found(None, "", why)
        if self.not_names.fullmatch(name):
            return None
        for pattern, new in self.rules:
            match = pattern.match(name)
            if match:
                rest = name[match.end() :]
                for old, other in self.inside:
                    rest = rest.replace(old, other)
                result = match.expand(new) + rest
                if self.half.search(result):
                    return Found(None, "", f"its regular spelling would be {result}, which nothing confirms")
                return Found(result, "regular")
        return None

    def _find_header(self, path: str) -> Found | None:
        """What the include *path* becomes (in quotes if it must be quoted); None: it stays."""
        if path in self.headers:
            return Found(self.headers[path][0], self.headers[path][1])
        if path in self.unchanged:
            return None
        if path in self.unresolved:
            return Found(None, "", self.unresolved[path][1] or "no MUSA header of this kind has been seen")
        top, _, rest = path.partition("/")
        if top in ("cutlass", "cute") and rest:
            parts = [re.sub(r"^cutlass(?=$|\.)", "mutlass", part) for part in rest.split("/")]
            return Found("/".join(["mu" + top[2:], *parts]), "regular")
        if path.startswith("cuda/std/"):
            return Found("musa" + path[4:], "regular")
        if re.match(r"(?:ATen|c10|torch/csrc)/(?:.*/)?cuda/", path):
            new = re.sub(r"(?<=/)cuda(?=/)", "musa", path).replace("CUDA", "MUSA")
            if re.search(r"(?i:nccl|cudnn|cublas|cusolver|cusparse|nvtx|nvrtc)", new):
                return Found(None, "", "no MUSA header of this kind has been seen")
            return Found(new[:-4] + ".muh" if new.endswith(".cuh") else new, "regular")
        if self.reported_headers.fullmatch(path):
            return Found(None, "", "no MUSA header of this kind has been seen")
        return None


def _branches(pattern: str) -> list[str]:
    """The alternatives of a data file's *pattern*, each beginning with a letter."""
    group = re.match(r"\(\?:([A-Z0-9|]+)\)", pattern)
    if group:
        return [first + pattern[group.end() :] for first in group[1].split("|")]
    if pattern.startswith("aoti_torch_"):
        return ["aoti_torch_(?:create_|delete_|get_current_)?cuda_"]
    depth, start, result = 0, 0, []
    for i, letter in enumerate(pattern):
        depth += (letter == "(") - (letter == ")")
        if letter == "|" and not depth:
            result.append(pattern[start:i])
            start = i + 1
    return [*result, pattern[start:]]
