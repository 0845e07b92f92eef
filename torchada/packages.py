"""Names of what is to be masqueraded, and whether a row fits the package that is installed."""

from __future__ import annotations

import os
import re
import sys
import zipfile
from collections.abc import Iterable, Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.specifiers import SpecifierSet

from .errors import ConfigError
from .platform import find_module
from .rules import Masquerade
from .tables import PACKAGES

VARIABLE, OFF_VARIABLE = "TORCHADA_MASQUERADE", "TORCHADA_NO_MASQUERADE"
NEVER = ("torch", "torch_musa", "torchada")
MENTIONS_MUSA = re.compile(rb"(?<![a-z])(torch_?)?musa(?![a-z])", re.IGNORECASE)
_MODULE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*")


def split(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def is_folder(name: str) -> bool:
    return os.sep in name


def checked(name: str) -> str:
    """A name as it is kept: a dotted name, or an absolute folder that ends in a separator.

    Raises ConfigError for what is neither a module's name nor code on disk, and for torch itself.
    """
    if _MODULE.fullmatch(name) and not name.endswith(".py"):
        if name.partition(".")[0] in NEVER:
            raise ConfigError(f"{name} cannot be masqueraded: {', '.join(NEVER)} always get the true answers")
        return name
    path = os.path.realpath(name)
    if not name.strip() or not os.path.exists(path):  # "" would be the current folder
        raise ConfigError(f"{name!r} cannot be masqueraded: neither the name of a module nor an existing path")
    if "," in path:
        raise ConfigError(f"{name!r} cannot be masqueraded: its path has a comma, which separates names")
    folder = path if os.path.isdir(path) or zipfile.is_zipfile(path) else os.path.dirname(path)
    return os.path.join(folder, "")


def remember(names: Iterable[str]) -> None:
    """Add names to the environment variable, from which this process and its children take them."""
    known = split(os.environ.get(VARIABLE, ""))
    os.environ[VARIABLE] = ",".join(dict.fromkeys([*known, *map(checked, names)]))


def program_names(program: list[str]) -> list[str]:
    """What ``--masquerade`` means for ``python -m torchada --masquerade *program*``.

    Raises ConfigError where the program is torch's own.
    """
    first = program[0] if program else "-"
    if first.startswith("-m"):
        module = first[2:] or (program[1] if len(program) > 1 else "")
        top = module.partition(".")[0]
        if top in NEVER:
            raise ConfigError(
                f"{module} cannot be masqueraded: {', '.join(NEVER)} always get the true answers; name what it runs: "
                f"python -m torchada --masquerade=train.py -m {module} ..."
            )
        return [top] if top else []
    if first.startswith("-"):
        return ["__main__"]
    return [os.path.realpath(first)] if os.path.exists(first) else []  # python says that it is not there


def mentions_musa(file: str, loader: Any = None) -> bool:
    """Whether source code names MUSA; False where there is no source."""
    try:
        read = getattr(loader, "get_data", None)
        text = read(file) if read else Path(file).read_bytes()
    except OSError:
        return False
    # The plain search first: it is ten times as fast.
    return b"musa" in text.lower() and MENTIONS_MUSA.search(text) is not None


def sources(module: str, pattern: str = "*.py") -> Iterator[Path]:
    """The files of a module, and of all below it, that is installed or imported."""
    top, *parts = module.split(".")
    imported = sys.modules.get(top)
    spec = imported.__spec__ if imported is not None else find_module(top)
    if spec is None:
        return
    if not spec.submodule_search_locations and spec.origin:
        yield from Path(spec.origin).parent.glob(Path(spec.origin).name if pattern == "*.py" else f"{top}{pattern[1:]}")
    for folder in spec.submodule_search_locations or ():
        at = Path(folder, *parts)
        yield from at.rglob(pattern) if at.is_dir() else at.parent.glob(f"{at.name}{pattern[1:]}")


def refused_rows() -> set[str]:
    """The rows that ``TORCHADA_NO_MASQUERADE`` turns off. Raises ConfigError for a package that has none."""
    names, known = set(split(os.environ.get(OFF_VARIABLE, ""))), {row.root for row in PACKAGES}
    if "all" in names:
        return known
    if names - known:
        raise ConfigError(
            f"{OFF_VARIABLE}: there is no row for {', '.join(sorted(names - known))}; use all, or some of: "
            f"{', '.join(sorted(known))}"
        )
    return names


def row_trouble(row: Masquerade) -> str:
    """Why a row does not fit the package that is installed; an empty string where it does."""
    if row.root in refused_rows():
        return f"turned off by {OFF_VARIABLE}"
    try:
        version = metadata.version(row.package)
    except metadata.PackageNotFoundError:
        return f"the version of {row.package} is not known"
    if not SpecifierSet(row.versions).contains(version, prereleases=True):
        return f"tried with {row.package} {row.versions}, not with {version}"
    files = (file for module in row.modules for file in sources(module))
    aware = next((file for file in files if mentions_musa(str(file))), None)
    return f"it knows MUSA by itself ({aware})" if aware else ""
