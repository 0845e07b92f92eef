"""``python -m torchada enable | disable | status``: whether an environment starts with torchada."""

from __future__ import annotations

import argparse
import json
import os
import platform
import shutil
import site
import subprocess
import sys
import sysconfig
from typing import Any

from . import __version__, startup
from .inherit import SITE, disinherit

FILES = ("torchada.pth", "torchada.start")
# Between torchada and its own processes.
PRIVATE = ("TORCHADA_ALLOC_CONF", "TORCHADA_INHERIT", "TORCHADA_SUMMARY", "TORCHADA_VIA", "TORCHADA_VISIBLE")
PROBE = "import sys; s = sys.modules.get('torchada.startup'); print('via', s.state['via'] if s else None)"


class EnableError(Exception):
    """The environment could not be changed; the text says why and what to do instead."""


def site_directories() -> list[str]:
    """Where the site module of this Python looks for start files, each real directory once."""
    found = [sysconfig.get_path("purelib"), *site.getsitepackages()]
    if site.ENABLE_USER_SITE:
        found.append(site.getusersitepackages())
    return list({os.path.realpath(path): path for path in found if os.path.isdir(path)}.values())


def start_files() -> list[str]:
    """The start files of torchada that this environment has."""
    paths = (os.path.join(directory, name) for directory in site_directories() for name in FILES)
    return [path for path in paths if os.path.exists(path)]


def is_environment() -> bool:
    """Whether this Python belongs to an environment of its own (venv, virtualenv, conda)."""
    return sys.prefix != sys.base_prefix or os.path.isdir(os.path.join(sys.prefix, "conda-meta"))


def starts_with(*options: str, **environment: str) -> str | None:
    """How a new Python of this environment, given *options*, switches torchada on; None if it does not."""
    command = [sys.executable, *options, "-c", PROBE]
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True)
    answer = result.stdout.strip().rpartition("via ")[2]
    return answer if result.returncode == 0 and answer != "None" else None


def refused(path: str, error: OSError) -> EnableError:
    """What to say when *path* cannot be written or removed."""
    return EnableError(
        f"cannot change {path}: {error.strerror}. Without write access, switch on by "
        f"PYTHONPATH={SITE} (or 'import torchada' in the program), and off by TORCHADA=0"
    )


def remove(paths: list[str]) -> None:
    """Delete start files."""
    for path in paths:
        try:
            os.remove(path)
        except OSError as error:
            raise refused(path, error) from error


def enable(anyway: bool = False) -> list[str]:
    """Write the start files into this environment, and check that they work; their paths.

    Args:
        anyway: also where this Python is not an environment of its own, but the machine's or the user's.

    Raises:
        EnableError: not writable; not installed here; no environment and not *anyway*.
    """
    if not (anyway or is_environment()):
        raise EnableError(
            f"{sys.executable} is not in a virtual or conda environment: every program it runs would start "
            "with torchada. Add --yes if that is meant"
        )
    package = os.path.dirname(SITE)
    parent = os.path.dirname(package)
    beside = parent if parent in site_directories() else sysconfig.get_path("purelib")
    written = [os.path.join(beside, name) for name in FILES]
    for path in written:
        try:
            shutil.copyfile(os.path.join(SITE, os.path.basename(path)), path)
        except OSError as error:
            raise refused(path, error) from error
    if starts_with("-E", TORCHADA="1") is None:
        remove(written)
        raise EnableError(
            f"torchada is not installed in {sys.prefix} (this one is {package}): a new Python does not "
            "find it. Install it there (pip install, with or without -e), or switch on by PYTHONPATH=" + SITE
        )
    return written


def disable() -> list[str]:
    """Remove the start files from this environment, whoever wrote them; their paths. The package stays.

    Raises:
        EnableError: not writable.
    """
    paths = start_files()
    remove(paths)
    return paths


def status() -> dict[str, Any]:
    """How a new Python of this environment is switched on or off, and by what, as plain data."""
    if startup.state["via"] == "import":
        disinherit()  # this very command is active only for having imported torchada
    names = {"PYTHONPATH", "MUSA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES"}
    names |= {name for name in os.environ if name.startswith("TORCHADA") and name not in PRIVATE}
    customize = sys.modules.get("sitecustomize")
    return {
        "python": sys.executable,
        "python_version": platform.python_version(),
        "prefix": sys.prefix,
        "environment": is_environment(),
        "torchada": __version__,
        "package": os.path.dirname(SITE),
        "start_files": start_files(),
        "variables": {name: os.environ[name] for name in sorted(names) if name in os.environ},
        "sitecustomize": getattr(customize, "__file__", None),
        "switched_off": startup.switched_off(),
        "new_process": starts_with(),
    }


def show(facts: dict[str, Any]) -> str:
    """*facts* of status() as text."""
    kind = "an environment" if facts["environment"] else "not an environment"
    variables = [f"{name}={value}" for name, value in facts["variables"].items()]
    new = facts["new_process"]
    lines = [
        ("python", f"{facts['python']} ({facts['python_version']}; {facts['prefix']} is {kind})"),
        ("torchada", f"{facts['torchada']} in {facts['package']}"),
        ("start files", "\n".join(facts["start_files"]) or "none (python -m torchada enable writes them)"),
        ("variables", "\n".join(variables) or "none set"),
        ("sitecustomize", facts["sitecustomize"] or "none"),
        ("a new python", f"is switched on by {new}" if new else "stays off"),
    ]
    if facts["switched_off"]:
        lines.append(("note", "TORCHADA=0 switches everything off"))
    return "\n".join(f"{name:<14}{text}".replace("\n", "\n" + " " * 14) for name, text in lines)


def main(command: str, argv: list[str]) -> int:
    """Carry out *command* (enable, disable or status) with its arguments *argv*; the exit status."""
    about = {"enable": enable.__doc__, "disable": disable.__doc__, "status": status.__doc__}[command] or ""
    parser = argparse.ArgumentParser(prog=f"python -m torchada {command}", description=about.split("\n")[0])
    if command == "enable":
        parser.add_argument("--yes", action="store_true", help="also outside of an environment")
    if command == "status":
        parser.add_argument("--json", action="store_true", help="print JSON")
    options = parser.parse_args(argv)
    try:
        if command == "enable":
            print("\n".join(f"wrote {path}" for path in enable(options.yes)))
            print("every Python started here is switched on now; undo: python -m torchada disable")
        elif command == "disable":
            paths = disable()
            print("\n".join(f"removed {path}" for path in paths) or "nothing to remove: no start files here")
            print("import torchada and python -m torchada still work; installing again brings the files back")
        else:
            facts = status()
            print(json.dumps(facts, indent=2) if options.json else show(facts))
    except EnableError as error:
        print(f"torchada: {error}", file=sys.stderr)
        return 1
    return 0
