"""ctypes: MUSA's libraries answer the function names of CUDA's, and are found where CUDA's are asked for."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable
from typing import Any

from ..names import counterpart_file, is_musa_library, musa_name

VERSIONS = ("", ".5", ".4", ".3", ".2", ".1")  # of the vendor's toolkits, newest first


def new_function(original: Callable[..., Any], cls: type, *args: Any, **kwargs: Any) -> Any:
    """A function of a library: ``library.cudaMalloc``, ``library["cudaMalloc"]`` and
    ``CFUNCTYPE(...)(("cudaMalloc", library))`` all come here."""
    try:
        return original(cls, *args, **kwargs)
    except AttributeError as error:
        if not (args and isinstance(args[0], tuple)):  # a callback, or an address
            raise
        name, library = args[0]
        text = name.decode("ascii", "replace") if isinstance(name, bytes) else name
        other = musa_name(text) if is_musa_library(getattr(library, "_name", None)) else text
        if other == text:
            raise
        try:
            return original(cls, (other, library), *args[1:], **kwargs)
        except AttributeError:
            raise AttributeError(f"{error} (nor its MUSA spelling {other})", name=text, obj=library) from None


def open_library(original: Callable[..., None], self: ctypes.CDLL, name: Any = None, *args: Any, **kwargs: Any) -> None:
    """``CDLL("libcudart.so.12")``: the MUSA library, where there is one. A path to a file that is there is kept."""
    tried = _candidates(name)
    for candidate in tried:
        try:
            return original(self, candidate, *args, **kwargs)
        except OSError:
            continue  # the error below names every candidate
    try:
        original(self, name, *args, **kwargs)
    except OSError as error:
        if not tried:
            raise
        raise OSError(f"{error} (nor a MUSA counterpart: {', '.join(tried)})") from error


def find_library(original: Callable[..., str | None], name: str) -> str | None:
    """``ctypes.util.find_library("cudart")``"""
    other = counterpart_file(f"lib{name}.so")
    return (original(other.removeprefix("lib").removesuffix(".so")) if other else None) or original(name)


def _candidates(name: Any) -> list[str]:
    """Where the MUSA counterpart of a CUDA library may be."""
    if not isinstance(name, (str, bytes, os.PathLike)):
        return []
    path = os.fsdecode(name)
    other = counterpart_file(path)
    if other is None or (os.path.dirname(path) and os.path.exists(path)):
        return []
    homes = [home for home in (os.environ.get("MUSA_HOME"), os.environ.get("MUSA_PATH"), "/usr/local/musa") if home]
    places = ["", *(os.path.join(home, "lib", "") for home in homes)]
    return [f"{place}{other}{version}" for place in places for version in VERSIONS]
