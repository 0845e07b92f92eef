"""Edits that FlashInfer's sources need, and nobody else's: only texts that open ``namespace flashinfer`` get them.

mcc wants ``template`` before members of dependent types; FlashInfer's ``math.cuh`` is PTX, so its functions become the
intrinsics of the device. The names are data (``symbols/flashinfer.json``).
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any

from . import lexer
from .contexts import GAP, Edit, previous

OURS = re.compile(r"\bnamespace\s+flashinfer\b")
MATH = re.compile(rf"\bmath{GAP}::{GAP}(\w+)")
INCLUDES = re.compile(r'\#[ \t]*include[ \t]*"(?:\.\./)*math\.cuh"')
CALL = re.compile(rf"{GAP}\(")
VECTOR = re.compile(rf"{GAP}<{GAP}(?:VEC_SIZE|vec_size){GAP}>")
ANGLE = re.compile(rf"{GAP}<")
CAPACITY = re.compile(r"compute_capacity\s*\.\s*first\s*>=\s*(\d+)\b")


@lru_cache(maxsize=1)
def _scanner(words: tuple[str, ...]) -> re.Pattern[str]:
    return lexer.scanner(words, odd=False)


def edits(data: dict[str, Any], text: str) -> list[Edit]:
    """The edits of *text*, which may be anybody's."""
    if "flashinfer" not in text or not OURS.search(text):
        return []
    functions, members = data["math"], data["members"]
    scan = _scanner((*members, *data["statics"], "math", "compute_capacity"))
    made: list[Edit] = []
    includes: list[tuple[int, int]] = []
    others = False
    for match in scan.finditer(text):
        start, end, word = match.start(), match.end(), match[0]
        left = text[previous(text, start) - 1 : previous(text, start) + 1]
        if word[0] == "#":
            if INCLUDES.fullmatch(word):
                includes.append((start, end))
        elif (word in members and left[-1:] == "." and VECTOR.match(text, end)) or (
            word in data["statics"] and left == "::" and (VECTOR if word == "cast" else ANGLE).match(text, end)
        ):
            made.append(Edit(start, end, f"template {word}", "FlashInfer"))
        elif word == "compute_capacity" and (compared := CAPACITY.match(text, start)) and compared[1] == "8":
            made.append(Edit(compared.start(1), compared.end(1), "3", "FlashInfer"))
        elif word == "math" and (named := MATH.match(text, start)):
            call = CALL.match(text, named.end())
            new = functions.get(named[1])
            if new is None or (new[-1] == "(" and not call):
                others = True
            elif new[-1] == "(" and call:
                made.append(Edit(start, call.end(), new + "0xffffffff, ", "FlashInfer"))
            else:
                made.append(Edit(start, named.end(), new, "FlashInfer"))
    if not others:  # nothing of it is used any more
        made += [Edit(start, end, f"// {text[start:end]}: PTX", "FlashInfer") for start, end in includes]
    return sorted(made)
