"""Rewriting one text: what each kind of name does there, and the edits, changes and problems that come of it."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

from . import contexts, lexer
from .changes import Change, Ported, Problem
from .contexts import GAP, Edit, directive, in_comment, previous, qualifiers
from .lexer import PATH
from .tables import PASTED, Tables

SUFFIX = re.compile(r"\.(?:cu|cuh)$", re.IGNORECASE)
DEVICE = re.compile(r"__(?:global|device)__")
TORCH = ("at", "c10", "torch")
DISPATCHED = ("DeviceType", "DispatchKey", "Backend")
PATH_AT_END = re.compile(rf"(?:{PATH})$")
MESSAGE = re.compile(rf"\#{lexer.GAP}(?:error|warning)\b")
STD = re.compile(rf"{GAP}::{GAP}std\b")
INNER = re.compile(rf"{GAP}::{GAP}(\w*(?:cuda|CUDA|Cuda)\w*)")
NO_ARGUMENTS = re.compile(rf"{GAP}\({GAP}\)")
MEMBER = re.compile(r"(?<!\.)\.\s*$")
TENSORS = re.compile(r"\b(?:torch|at|ATen)(?:::|/)")  # a text that may hold tensors
PASTE = re.compile(rf"{GAP}##")
CALL = re.compile(rf"{GAP}\(")
EQUALS = ("==", "!=", "<=", ">=")
# Places that take a warp to have 32 threads: a part that a text must have, and what follows it then.
WARPS = {
    "threadIdx.": re.compile(r"threadIdx\.[xyz]\s*(?:[%/]\s*32|&\s*(?:31|0x1[fF])|>>\s*5)\b"),
    **{
        part: re.compile(rf"{part}\b\s*={{0,2}}\s*32\b")
        for part in ("arpSize", "arp_size", "ARP_SIZE", "ARPSIZE", "hreadsPerWarp", "THREADS_PER_WARP")
    },
}
IN_TORCH = re.compile(r"\bnamespace\s+(?:at|c10|torch)\s*\{\s*(?:inline\s+)?namespace\s+$")
NAMESPACE = re.compile(r"\bnamespace\s+$")
VENDOR = re.compile(r"cu[a-z]|nv[a-z]|nccl")


class Text:
    """The state of porting one text: finished pieces, changes, problems."""

    def __init__(self, tables: Tables, ptx: str, text: str, name: str, own_header: Callable[[str], bool]) -> None:
        self.tables, self.ptx, self.text, self.own_header = tables, ptx, text, own_header
        self.device = bool(SUFFIX.search(name) or DEVICE.search(text))
        self.closing = contexts.Closer(text)
        self.edits: list[Edit] = []
        self.found: list[tuple[int, str, str, bool]] = []
        self.done = 0
        self.mentions: dict[str, bool] = {}

    @cached_property
    def tensors(self) -> bool:
        return bool(TENSORS.search(self.text))

    def edit(self, start: int, end: int, new: str, evidence: str) -> None:
        if new != self.text[start:end]:
            self.edits.append(Edit(start, end, new, evidence))
        self.done = end

    def problem(self, start: int, name: str, why: str, note: bool = False) -> None:
        self.found.append((start, name, why, note))

    def include(self, start: int, end: int) -> None:
        """An include directive, or the message of one that holds no code."""
        path = PATH_AT_END.search(self.text, start, end)
        if not path or MESSAGE.match(self.text, start) or not directive(self.text, end):
            return
        inner = path[0][1:-1]
        if (path[0][0] == '"' or inner not in self.tables.headers) and self.own_header(inner):
            return
        found = self.tables.find_header(inner)
        if found is None:
            return
        if found.new is None:
            if path[0][0] == "<" or inner in self.tables.unresolved:  # others in quotes are the project's
                self.problem(path.start(), path[0], found.problem)
            return
        new = found.new if found.new[0] == '"' else f"{path[0][0]}{found.new}{path[0][-1]}"
        self.edit(path.start(), end, new, found.evidence)

    def word(self, start: int, end: int, word: str) -> None:
        """A name without rules of its own."""
        text = self.text
        if word in PASTED and PASTE.match(text, end):
            self.problem(start, word + "##", "a name pasted together by a macro: write the whole names")
            return
        found = self.tables.find(word)
        if (found is None or found.new is None) and word.startswith("CUDA"):
            names = qualifiers(text, start)
            if names[:1] and names[0] in TORCH and names[1:2] == ("cuda",):
                self.edit(start, end, word.replace("CUDA", "MUSA"), "regular")
                return
        if found is None:
            return
        if found.new is None:
            self.problem(start, word, found.problem)
            return
        new = found.new
        if new not in self.mentions:
            self.mentions[new] = new in text
        if self.mentions[new] and contexts.defines_itself(self.closing, start, end, new):
            self.problem(start, word, f"kept: it is defined here by {new}, its own MUSA name", note=True)
            return
        self.edit(start, end, new, found.evidence)

    def qualified(self, start: int, end: int, word: str) -> None:
        """``cuda``, ``CUDA``, ``kCUDA``: what they mean hangs on what stands around them."""
        text = self.text
        names = qualifiers(text, start)
        for i in range(len(names)):
            entry = self.tables.qualified.get("::".join((*names[i:], word)))
            if entry:
                self.edit(start, end, entry[0].rpartition("::")[2], entry[1])
                inner = INNER.match(text, end) if word == "cuda" else None
                if inner and not inner[1].startswith("CUDA") and self.tables.find(inner[1]) is None:
                    self.problem(inner.start(1), inner[1], "a PyTorch name with no MUSA spelling seen")
                return
        if word == "kCUDA" and not names:
            self.word(start, end, word)
        elif word == "CUDA" and names and names[-1] in DISPATCHED:
            self.edit(start, end, "PrivateUse1", "regular")
        elif word == "cuda" and not names:
            head = text[max(0, start - 200) : start]
            if STD.match(text, end) or IN_TORCH.search(head):
                self.edit(start, end, "musa", "single")
            elif (library := contexts.LIBCUDACXX.match(text, end)) and not NAMESPACE.search(head):
                self.problem(start, f"cuda::{library[1]}", "libcu++ beyond cuda::std has no MUSA counterpart seen")
            elif PASTE.match(text, end):
                self.word(start, end, word)
            elif (call := NO_ARGUMENTS.match(text, end)) and MEMBER.search(head) and self.tensors:
                self.edit(start, call.end(), "to(c10::DeviceType::PrivateUse1)", "documented")
        elif word == "cuda" and names[0] in TORCH:
            self.problem(start, "::".join((*names, word)), "a PyTorch namespace with no MUSA spelling seen")

    def architecture(self, start: int, end: int, word: str) -> None:
        result = contexts.architecture(self.tables, self.text, start, end)
        if isinstance(result, str):
            self.problem(start, word, f"condition left whole: {result}")
        for edit in result if not isinstance(result, str) else ():
            self.edit(*edit)

    def scale(self, start: int, end: int, word: str) -> None:
        """A version number: NVIDIA's and MUSA's count differently, so a comparison never changes sides."""
        compared = contexts.COMPARATOR.match(self.text, end)
        left = previous(self.text, start)
        before = self.text[max(0, left - 1) : left + 1]
        if compared or before[-1:] in ("<", ">") or before in EQUALS or directive(self.text, start):
            self.problem(start, word, "left alone: versions of CUDA and MUSA count on different scales")
        else:
            self.word(start, end, word)

    def dispatch_key(self, start: int, end: int, word: str) -> None:
        key = contexts.KEY.match(self.text, end)
        new = self.tables.contexts["dispatch_keys"].get(key[1]) if key else None
        if key and new:
            self.edit(key.start(1), key.end(1), new, "single")
        elif key and "CUDA" in key[1]:
            self.problem(key.start(1), key[1], "a dispatch key with no PrivateUse1 counterpart")

    def is_cuda(self, start: int, end: int, word: str) -> None:
        left = previous(self.text, start)
        member = left >= 0 and (self.text[left] == "." or self.text[left - 1 : left + 1] in ("->", "::"))
        if member and CALL.match(self.text, end):
            self.edit(start, end, "is_privateuseone", "single")

    def no_op(self, start: int, end: int, word: str) -> None:
        call = NO_ARGUMENTS.match(self.text, end)
        if not call:
            self.problem(start, word, "programmatic dependent launch has no MUSA counterpart")
            return
        left = previous(self.text, start)
        if self.text[left - 1 : left + 1] == "::" and not qualifiers(self.text, start):
            start = left - 1
        self.edit(start, call.end(), "((void)0)", "documented")

    def launch_attribute(self, start: int, end: int, word: str) -> None:
        self.problem(start, word, "programmatic dependent launch has no MUSA counterpart")

    def assembly(self, start: int, end: int, word: str) -> None:
        edit, why = contexts.assembly(self.closing, start, end, self.device, self.ptx)
        if why:
            self.problem(start, word, why, note=self.ptx == "stub")
        if edit:
            self.edit(*edit)

    def dlopen(self, start: int, end: int, word: str) -> None:
        opened = contexts.OPENED.match(self.text, end)
        library = self.tables.libraries.get(opened[1]) if opened else None
        if opened and library and library[0]:
            version = opened[2] if opened[1] == "cuda" else ""  # only the driver's is known to be the same
            self.edit(opened.start(1), opened.end(2), f"{library[0]}.so{version}", library[1])
        elif opened and VENDOR.match(opened[1]):
            self.problem(opened.start(1), f"lib{opened[1]}.so", "no MUSA library of this kind has been seen")

    def device_name(self, start: int, end: int, word: str) -> None:
        """``torch::Device("cuda:0")``: the C++ library reads the name of the backend."""
        named = contexts.DEVICE.match(self.text, end)
        if named and qualifiers(self.text, start)[:1] and qualifiers(self.text, start)[0] in TORCH:
            self.edit(named.start(1), named.end(1), "musa", "documented")

    def dlsym(self, start: int, end: int, word: str) -> None:
        symbol = contexts.SYMBOL.match(self.text, end)
        found = self.tables.find(symbol[1]) if symbol else None
        if symbol and found and found.new:
            self.edit(symbol.start(1), symbol.end(1), found.new, found.evidence)
        elif symbol and found:
            self.problem(symbol.start(1), symbol[1], found.problem)

    def raw(self, start: int, end: int) -> None:
        """A raw literal: text, and not touched."""
        if DEVICE.search(self.text, start, end):
            self.problem(start, "a string", "device code in a string is not ported: compile what Porter makes of it")

    def finish(self) -> Ported:
        """The text put together, places turned into lines."""
        text, last = self.text, 0
        if contexts.PTX_ERROR in text:
            for match in re.finditer(re.escape(contexts.PTX_ERROR), text):
                self.problem(
                    match.start(), "static_assert", "inline PTX that an earlier port made a compile-time error"
                )
        for part, pattern in WARPS.items():
            for match in pattern.finditer(text) if part in text else ():
                if not in_comment(text, match.start()):
                    why = "a warp has 128 threads below mp_31: read warpSize at run time"
                    self.problem(match.start(), match[0], why, note=True)
        pieces, changes, problems = [], [], []
        line, counted = 1, 0
        for start, end, new, evidence in sorted(self.edits):
            if start < last:  # another rule has this place
                continue
            pieces += [text[last:start], new]
            line, counted = line + text.count("\n", counted, start), start
            changes.append(Change(line, text[start:end], new, evidence))
            last = end
        line, counted = 1, 0
        for start, name, why, note in sorted(self.found):
            line, counted = line + text.count("\n", counted, start), start
            problems.append(Problem(line, name, why, note))
        return Ported("".join([*pieces, text[last:]]) if pieces else text, changes, problems)
