"""Flags of nvcc, names of libraries and macros, as mcc and the linker take them (the rows: ``tables/nvcc.py``)."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

from ..errors import NotOnMusa
from ..porting.tables import Tables
from ..tables import nvcc
from ..tables.names import LIBRARIES

_ROWS = {spelling: row for spellings, row in nvcc.FLAGS.items() for spelling in spellings.split()}
_LIBRARIES = {**LIBRARIES, **nvcc.LIBRARIES}
_NO_LIBRARY = re.compile(nvcc.NO_COUNTERPART)
_HOST = ("-Xcompiler", "--compiler-options")
_COMMAS = ("-Wl,", "-Wa,", "-Wp,")  # these carry commas of their own
_WERROR = ("-Werror", "--Werror")
_MACRO = re.compile(r"(?:-([DU])|--(define|undefine)-macro(?:=|$))(.*)", re.DOTALL)
_told: set[str] = set()


@lru_cache(maxsize=1)
def _tables() -> Tables:
    return Tables()


def macro(name: str) -> str:
    """The macro that a ported source asks for where it asked for *name*."""
    found = _tables().find(name)
    return found.new if found and found.new else name


def tell(text: str) -> None:
    """Say *text* on standard error, once in a process."""
    if text not in _told:
        _told.add(text)
        sys.stderr.write(f"torchada: {text}\n")


def mcc_flags(flags: Iterable[str]) -> list[str]:
    """*flags*, written for nvcc, as mcc takes them; flags that are mcc's already stay.

    Raises NotOnMusa for a flag that asks for what MUSA does not have. What is lost is told, once.
    """
    done: list[str] = []
    rest = iter(flags)
    for flag in rest:
        name, equals, value = flag.partition("=")
        macros = _MACRO.fullmatch(flag)
        if flag in _HOST or (equals and name in _HOST):
            done += _host_flags(value if equals else next(rest, ""))
        elif name in _WERROR and equals and value in nvcc.WERROR:
            done += _given(nvcc.WERROR[value])
        elif macros:
            letter = macros[1] or macros[2][0].upper()
            done.append(f"-{letter}{_macro(macros[3] or next(rest, ''))}")
        elif flag.startswith("-l") and flag not in _ROWS and len(flag) > 2:
            done += [f"-l{library}" for library in libraries([flag[2:]])]
        elif flag in _ROWS or (equals and name in _ROWS and _ROWS[name][0]):
            done += _row(flag if flag in _ROWS else name, value if name in _ROWS and equals else None, rest)
        else:
            done.append(flag)
    return done


def _row(flag: str, value: str | None, rest: Iterator[str]) -> list[str]:
    row: tuple[Any, ...] = _ROWS[flag]
    takes, new, why, *lost = row
    if takes and value is None:
        value = next(rest, "")
    if isinstance(new, dict):
        new = new.get(value, new.get(None))
    elif value is not None and flag in ("-arch", "--gpu-architecture") and value.startswith("mp_"):
        new = "--offload-arch={}"
    if new is None:
        written = f"{flag} {value}" if takes else flag
        raise NotOnMusa(f"nvcc's flag {written}", f"{why}.", "leave it out of the flags for nvcc")
    if lost:
        tell(f"nvcc's flag {flag} is left out: {why}")
    return [word.format(value) for word in _given(new)]


def _given(text: str) -> list[str]:
    return text.split()


def _macro(text: str) -> str:
    name, equals, value = text.partition("=")
    return f"{macro(name)}{equals}{value}"


def _host_flags(value: str) -> list[str]:
    """The flags in the value of ``-Xcompiler``: separated by commas, perhaps in quotes of their own."""
    words = shlex.split(value)
    return [part for word in words for part in ([word] if word[:4] in _COMMAS else word.split(","))]


def libraries(names: Iterable[str], folders: Sequence[str] = ()) -> list[str]:
    """The libraries linked for *names*.

    Raises NotOnMusa for one of NVIDIA's without counterpart, unless the program has a library of that name in
    *folders*.
    """
    done: list[str] = []
    for name in names:
        new = _LIBRARIES.get(name, name)
        if _NO_LIBRARY.fullmatch(name) and not _in(folders, name):
            raise NotOnMusa(
                f"The library {name}",
                "no MUSA library of this kind has been seen.",
                "leave it out of libraries= and of the sources on MUSA",
            )
        if new:
            done.append(new)
    return done


def _in(folders: Sequence[str], name: str) -> bool:
    return any(os.path.exists(os.path.join(folder, f"lib{name}{end}")) for folder in folders for end in (".so", ".a"))


def link_flags(flags: Iterable[str]) -> list[str]:
    """*flags* for the host's linker, with MUSA's libraries for CUDA's (in ``-lNAME``)."""
    words = list(flags)
    folders = [word[2:] for word in words if word.startswith("-L")]
    done: list[str] = []
    for word in words:
        if re.fullmatch(r"-l[\w-]+", word):
            done += [f"-l{library}" for library in libraries([word[2:]], folders)]
        else:
            done.append(word)
    return done
