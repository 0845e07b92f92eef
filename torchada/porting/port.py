"""Porting one text: CUDA names become MUSA names, whole identifiers at a time; what no table covers is reported."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping

from ..errors import ConfigError
from . import contexts, flashinfer
from .changes import Ported
from .lexer import stops, whole
from .rewrite import Text
from .tables import Tables

__all__ = ["Porter", "ptx_mode"]
PTX_MODES = ("error", "stub", "keep")
SIMPLE = frozenset("/\"'0123456789")  # what begins a comment, a literal, a number with separators
DIGITS = frozenset("0123456789$")


def ptx_mode() -> str:
    """What inline PTX becomes where nobody says it, as TORCHADA_PORT_PTX does. ConfigError: it has another word."""
    mode = os.environ.get("TORCHADA_PORT_PTX", "").strip().lower() or PTX_MODES[0]
    if mode not in PTX_MODES:
        raise ConfigError(f"TORCHADA_PORT_PTX={mode!r} is not known: use one of {', '.join(PTX_MODES)}")
    return mode


class Porter:
    """Ports texts with one set of tables.

    rules: whole identifiers and what they become, over the tables' own (the caller's rule wins).
    ptx: what becomes of inline PTX: ``"error"`` a compile-time error, ``"stub"`` a statement that sets its outputs
        to zero, ``"keep"`` nothing.
    ValueError: another *ptx*, or a rule that does not name identifiers.
    """

    def __init__(self, rules: Mapping[str, str] | None = None, ptx: str = "error") -> None:
        if ptx not in PTX_MODES:
            raise ValueError(f"ptx is one of {', '.join(PTX_MODES)}, not {ptx!r}")
        self.tables = Tables(rules)
        self.ptx = ptx
        self.handlers: dict[str, Callable[[Text, int, int, str], None]] = {
            "__CUDA_ARCH__": Text.architecture,
            "is_cuda": Text.is_cuda,
            "dlopen": Text.dlopen,
            "dlsym": Text.dlsym,
            "Device": Text.device_name,
            contexts.ALLOWED: Text.launch_attribute,
            **dict.fromkeys(("cuda", "CUDA", "kCUDA"), Text.qualified),
            **dict.fromkeys(contexts.IMPLS, Text.dispatch_key),
            **dict.fromkeys(contexts.ASM, Text.assembly),
            **dict.fromkeys(self.tables.contexts["scales"], Text.scale),
            **dict.fromkeys(self.tables.contexts["no_ops"], Text.no_op),
        }
        for name in self.tables.own:
            self.handlers.pop(name, None)

    def port(self, text: str, name: str = "", own_header: Callable[[str], bool] | None = None) -> Ported:
        """*text*, ported. *name*: of its file (``.cu`` tells device code). *own_header*: whether an include path is one
        of the project's own files, which keep their names."""
        original, text = text, whole(text)
        state = Text(self.tables, self.ptx, text, name, own_header or (lambda path: False))
        for start, end in stops(self.tables.scanner(text), text):
            first = text[start]
            if first in SIMPLE or start < state.done:
                continue
            if first == "#":
                state.include(start, end)
            elif text[end - 1] == '"':
                state.raw(start, end)
            else:
                while text[start - 1 : start].isidentifier() or text[start - 1 : start] in DIGITS:
                    start -= 1
                word = text[start:end]
                self.handlers.get(word, Text.word)(state, start, end, word)
        state.edits += flashinfer.edits(self.tables.flashinfer, text)
        ported = state.finish()
        return ported if ported.changes else ported._replace(text=original)
