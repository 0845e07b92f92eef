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
RARE = {"TORCH_LIBRARY_IMPL": "LIBRARY_IMPL", "STABLE_TORCH_LIBRARY_IMPL": "LIBRARY_IMPL", "Device": '"cuda'}
RARE |= {"__asm": "asm", "__asm__": "asm"}
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
        self.inside = rules["inside"]
        self.not_names = re.compile("|".join(rules["not_names"]))
        self.half = re.compile(rules["half"])
        self.reported = [(re.compile(pattern), why) for pattern, why in self.contexts["unresolved_patterns"]]
        self.reported_headers = re.compile(self.contexts["unresolved_headers"])
        self.find = lru_cache(maxsize=1 << 16)(self._find)
        self.find_header = lru_cache(maxsize=1 << 14)(self._find_header)

    def scanner(self, text: str) -> re.Pattern[str]:
        """The expression that stops in *text* wherever the porter may have something to do (see `lexer.scanner`)."""
        if not lexer.ODD.search(text) and not any(part in text for part in self.rare):
            return self.lean
        return self.full

    @cached_property
    def lean(self) -> re.Pattern[str]:
        return lexer.scanner(odd=False)

    @cached_property
    def full(self) -> re.Pattern[str]:
        from .contexts import WORDS

        return lexer.scanner({*WORDS, *self.own})

    @cached_property
    def rare(self) -> tuple[str, ...]:
        """Parts of the words that only the full scanner stops at."""
        from .contexts import WORDS

        words = [word for word in (*WORDS, *self.own) if not lexer.KEY.search(word)]
        return tuple(dict.fromkeys(RARE.get(word, word) for word in words))

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
