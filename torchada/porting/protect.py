"""What the porter never changes: the system, installed packages, other checkouts, what the user excludes."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable
from functools import lru_cache
from importlib import metadata
from importlib.machinery import PathFinder
from pathlib import Path
from urllib.parse import unquote, urlsplit

SKIPPED = frozenset(
    (".git", ".hg", ".svn", "__pycache__", "node_modules", "site-packages", "dist-packages", ".torchada-port")
)
SYSTEM = ("/usr", "/opt", "/lib", "/lib64", "/bin", "/sbin", "/etc", "/proc", "/sys", "/dev", "/boot", "/run")
MARKS = (".git", ".hg", ".svn")  # what the root of a checkout holds
PROJECT = (*MARKS, "setup.py", "pyproject.toml", "CMakeLists.txt")  # what the root of a project holds
CUTLASS = (("cutlass", "cutlass.h"), ("cute", "tensor.hpp"))  # folder, and what it holds if it is the library's
MUTLASS = "CUTLASS is PTX, and MUTLASS takes its place"
BUILT = ("temp.", "lib.", "bdist.")  # what setuptools makes in its build folder
MARK = ".torchada-port.json"  # in a ported copy: it may be written again
GUARDED = ("torch", "torch_musa", "pybind11")  # their checkouts stay as well, where they are installed from one


def inside(path: str, folder: str) -> bool:
    """Whether the real *path* is the real *folder* or below it."""
    return path == folder or path.startswith(folder.rstrip(os.sep) + os.sep)


def exclusions(text: str | None) -> tuple[list[str], set[str]]:
    """*text* as TORCHADA_EXCLUDE_DIRS spells it: real paths of folders, and bare names of folders."""
    paths: list[str] = []
    names: set[str] = set()
    for item in (text or "").replace(os.pathsep, ",").split(","):
        item = os.path.expandvars(os.path.expanduser(item.strip()))
        if os.sep in item:
            paths.append(os.path.realpath(item))
        elif item:
            names.add(item)
    return paths, names


@lru_cache(maxsize=64)
def package_roots(name: str) -> tuple[str, ...]:
    """Real paths that belong to the installed package *name*. Nothing is imported to find them."""
    folders = set(getattr(sys.modules.get(name), "__path__", ()))
    spec = PathFinder.find_spec(name) if name.isidentifier() else None
    if spec and spec.origin and spec.submodule_search_locations:
        folders.update(spec.submodule_search_locations)
    roots = {os.path.realpath(folder) for folder in folders}
    if name not in GUARDED:
        return tuple(sorted(roots))
    for above in [os.path.dirname(root) for root in roots]:  # a checkout that a .pth names
        if any(os.path.lexists(os.path.join(above, mark)) for mark in PROJECT):
            roots.add(above)
    try:
        direct = json.loads(metadata.distribution(name).read_text("direct_url.json") or "{}")
    except metadata.PackageNotFoundError:
        direct = {}
    if direct.get("dir_info", {}).get("editable"):
        roots.add(os.path.realpath(unquote(urlsplit(direct["url"]).path)))
    return tuple(sorted(roots))


class Protection:
    """What is left alone, with the user's exclusions (*exclude*, as TORCHADA_EXCLUDE_DIRS spells them)."""

    def __init__(self, exclude: str | None = None, apart: Iterable[Path | str] = ()) -> None:
        """apart: folders to step over without a word (where the porter or a build writes)."""
        self.paths, self.names = exclusions(exclude)
        self.roots = {root: name for name in (*GUARDED, "torchada", *self.names) for root in package_roots(name)}
        self.cutlass = True
        self.apart = {os.path.realpath(path) for path in apart}

    def folder(self, path: str) -> str:
        """Why the folder at the real *path* stays as it is, whatever is above it; empty: it does not."""
        name = os.path.basename(path)
        if name in SKIPPED:
            return "version control or installed packages"
        if name in self.names or path in self.paths:
            return "excluded"
        if path in self.roots:
            return f"the package {self.roots[path]} is installed from there"
        if any(os.path.lexists(os.path.join(path, mark)) for mark in MARKS):
            return "a checkout of its own"
        if os.path.exists(os.path.join(path, MARK)):
            return "a ported copy"
        if os.path.exists(os.path.join(path, "pyvenv.cfg")):
            return "a virtual environment"
        if name == "build" and _built(path):
            return "made by a build"
        return MUTLASS if self.cutlass and is_cutlass(path) else ""

    def whole(self, real: str) -> str:
        """Why nothing in the real folder *real* is to be ported because of what the user excludes."""
        if any(inside(real, path) for path in self.paths) or self.names.intersection(Path(real).parts):
            return "excluded"
        return ""

    def root(self, path: Path) -> str:
        """Why the project at *path* must not be ported in place; empty: it may be."""
        real = os.path.realpath(path)
        if real == "/" or any(inside(real, place) for place in SYSTEM):
            folder = real  # somebody's project is welcome to live below /opt or /usr/src
            while folder not in SYSTEM and folder != "/":
                if any(os.path.lexists(os.path.join(folder, mark)) for mark in PROJECT):
                    break
                folder = os.path.dirname(folder)
            else:
                return "it belongs to the system"
        if SKIPPED.intersection(Path(real).parts):
            return "it is inside version control or installed packages"
        for root, name in self.roots.items():
            if inside(real, root):
                return f"the package {name} is installed from there"
        return ""


def is_cutlass(path: str) -> bool:
    """Whether the folder *path* is a checkout of CUTLASS, or the part of it that others include."""
    name = os.path.basename(path)
    own = any(name == folder and os.path.isfile(os.path.join(path, file)) for folder, file in CUTLASS)
    if own or not os.path.isfile(os.path.join(path, "include", "cutlass", "cutlass.h")):
        return own
    return name == "cutlass" or os.path.isdir(os.path.join(path, "tools", "util"))  # else a project that vendors it


def _built(path: str) -> bool:
    """Whether the folder *path* was made by setuptools or CMake."""
    if os.path.exists(os.path.join(path, "CMakeCache.txt")):
        return True
    try:
        return any(name.startswith(BUILT) or name in ("lib", ".torchada-port") for name in os.listdir(path))
    except OSError:
        return False
