"""Compare the simulated torch_musa with the facts, name by name: ``python -m tests.simulator.conformance``.

For each version whose names are known it prints how many names (with the members of classes) are equal, deviate,
and are absent. What deviates or is absent stands, with its reason, in facts/deviations.json; the command fails when
something is not in that list, and when an entry of the list matches nothing any more.
"""

from __future__ import annotations

import argparse
import fnmatch
import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

FACTS = Path(__file__).with_name("facts")
ROOT = Path(__file__).resolve().parent.parent.parent
VERSIONS = ("2.5.0", "2.7.0", "2.7.1")
EQUAL, DEVIATING, ABSENT = "equal", "deviating", "absent"


def facts(version: str) -> dict[str, Any]:
    """The names of one version: those of 2.7.1 with the differences of that version."""
    newest = json.loads((FACTS / "torch_musa_2.7.1.json").read_text())
    if version == "2.7.1":
        return newest
    other = json.loads((FACTS / f"torch_musa_{version}.json").read_text())
    modules = {name: dict(names) for name, names in newest["modules"].items()}
    for name, lost in other["absent"].items():
        modules[name] = {key: value for key, value in modules[name].items() if key not in lost}
    for name, changed in other["modules"].items():
        modules.setdefault(name, {}).update(changed)
    for name in other["absent_modules"]:
        del modules[name]
    native = {scope: list(names) for scope, names in newest["native"].items()}
    for scope, lost in other["native_absent"].items():
        native[scope] = [one for one in native[scope] if one not in lost]
    for scope, more in other["native_more"].items():
        native[scope] = native[scope] + more
    return {
        **newest,
        "modules": modules,
        "native": native,
        "gone": other["absent"],
        "gone_modules": other["absent_modules"],
    }


def deviations(version: str) -> dict[str, str]:
    """Pattern -> reason, of the reviewed deviations that concern a version."""
    rows = json.loads((FACTS / "deviations.json").read_text())["rows"]
    return {row["where"]: row["why"] for row in rows if version in row.get("versions", VERSIONS)}


def observe(version: str) -> dict[str, list[str]]:
    """Import the simulated torch_musa here and compare: place -> [state, what is found]. Needs a fresh process."""
    import importlib
    import inspect

    import torchada.simulator

    torchada.simulator.install()
    import torch
    import torch_musa  # type: ignore[import-not-found]

    found: dict[str, list[str]] = {}

    def shape(given: Any, skip_first: bool = False) -> list[tuple[str, str, str]]:
        if isinstance(given, str):
            space: dict[str, Any] = {"torch": torch, "sys": sys, "dist": torch.distributed}
            # A default that is a name of the vendor's module is compared as a name.
            for word in ("invalid_vec_isa",):
                space[word] = word
            exec(f"def f{given}: pass", space)
            given = space["f"]
        shown = [
            (p.name, p.kind.name, "required" if p.default is p.empty else repr(p.default))
            for p in inspect.signature(given).parameters.values()
        ]
        return shown[1:] if skip_first else shown

    def constructor(cls: type) -> list[tuple[str, str, str]]:
        for base in cls.__mro__:
            for name in ("__new__", "__init__"):
                made = vars(base).get(name)
                if made is not None and base.__module__.startswith("torch_musa"):
                    return shape(getattr(made, "__func__", made), skip_first=True)
        try:
            return shape(cls)  # inherited from torch
        except ValueError:
            return []

    def note(where: str, problem: str | None) -> None:
        state = EQUAL if problem is None else ABSENT if problem == ABSENT else DEVIATING
        found[where] = [state, problem or ""]

    def compare(held: Any, kind: str, signature: str) -> str | None:
        if kind == "function" and signature:
            body = getattr(held, "__func__", getattr(held, "fget", None)) or held
            if not callable(body) or inspect.isbuiltin(body):
                return "not a function of Python"
            if shape(body) != shape(signature):
                return f"signature {inspect.signature(body)}, not {signature}"
        elif kind == "class":
            if not isinstance(held, type):
                return "not a class"
            if signature and constructor(held) != shape(signature):
                return f"constructor {constructor(held)}, not {signature}"
        elif kind == "module" and not inspect.ismodule(held):
            return "not a module"
        return None

    def compare_member(held: Any, kind: str, signature: str) -> str | None:
        wanted = {"staticmethod": staticmethod, "classmethod": classmethod}.get(kind)
        if wanted and not isinstance(held, wanted):
            return f"not a {kind}"
        if kind in ("method", "staticmethod", "classmethod") and signature:
            body = getattr(held, "__func__", held)
            if shape(body) != shape(signature):
                return f"signature {inspect.signature(body)}, not {signature}"
        return None

    def compare_patch(target: str, by: str) -> str | None:
        parts = target.split(".")
        held: Any = None
        for cut in range(len(parts) - 1, 0, -1):
            try:
                held = importlib.import_module(".".join(parts[:cut]))
            except ImportError:
                continue
            break
        for part in parts[cut:]:
            if not hasattr(held, part):
                return ABSENT
            held = getattr(held, part) if part != parts[-1] else inspect.getattr_static(held, part, getattr(held, part))
        if by.startswith("module "):
            return None if getattr(held, "__name__", held) == by.removeprefix("module ") else f"is {held}"
        if not by.startswith("torch_musa."):
            return None  # a value of torch's own, or of a type
        body = getattr(held, "fget", None) or getattr(held, "__func__", held)
        name = f"{getattr(body, '__module__', '')}.{getattr(body, '__qualname__', '')}"
        return None if name == by else f"is {name}, not {by}"

    data = facts(version)
    for module_name, names in data["modules"].items():
        try:
            module = importlib.import_module(module_name)
        except ImportError as error:
            note(module_name, ABSENT if isinstance(error, ModuleNotFoundError) else f"import fails: {error}")
            for name in names:
                note(f"{module_name}:{name}", ABSENT)
            continue
        note(module_name, None)
        for name, (kind, signature, *methods) in names.items():
            where = f"{module_name}:{name}"
            try:
                held = getattr(module, name)
            except (AttributeError, ModuleNotFoundError):
                note(where, ABSENT)
                continue
            note(where, compare(held, kind, signature))
            for method, (method_kind, method_signature) in (methods[0] if methods else {}).items():
                try:
                    member = inspect.getattr_static(held, method)
                except AttributeError:
                    note(f"{where}.{method}", ABSENT)
                else:
                    note(f"{where}.{method}", compare_member(member, method_kind, method_signature))
    for module_name, names in data.get("gone", {}).items():
        if module_name in data["gone_modules"]:
            try:
                importlib.import_module(module_name)
            except ModuleNotFoundError:
                continue
            note(module_name, "there, but this version has none")
            continue
        try:
            module = importlib.import_module(module_name)
        except ModuleNotFoundError:
            continue  # told above
        for name in names:
            if hasattr(module, name):
                note(f"{module_name}:{name}", "there, but this version has none")
    for scope, names in data["native"].items():
        holder: Any = torch_musa
        if not scope.startswith("torch_musa"):
            continue  # torch.distributed: bound when the process group is
        for part in scope.split(".")[1:]:
            holder = importlib.import_module("torch_musa._ext") if part == "_ext" else getattr(holder, part)
        if scope == "torch_musa":
            torch_musa.core._lazy_init.init()  # these are bound by the initialisation
        for name in names:
            note(f"{scope}:{name}", None if hasattr(holder, name) else ABSENT)
    for target, (_, by) in data["patched"].items() if version == "2.7.1" else ():  # the others were not observed
        note(f"patch:{target}", compare_patch(target, by))
    if version == "2.7.1":
        package = Path(torchada.simulator.__file__).parent
        text = "".join(p.read_text() for p in package.rglob("*") if p.suffix in (".py", ".cpp", ".h"))
        for name in data["environment"]:
            note(f"env:{name}", None if f'"{name}"' in text else ABSENT)
        for name in data["memory_stats_keys"]:
            note(f"memory_stats:{name}", None if name in torch_musa.memory_stats_as_nested_dict() else ABSENT)
    for name in data["used_but_not_registered"]:
        if hasattr(torch_musa._MUSAC, name):
            note(f"torch_musa._MUSAC:{name}", "there, but torch_musa only mentions it")
    return found


def collect(version: str) -> dict[str, list[str]]:
    """`observe` in a process of its own, without torchada's translation."""
    env = {key: value for key, value in os.environ.items() if not key.startswith("TORCHADA_SIM_DE")}
    env |= {"TORCHADA": "0", "TORCHADA_SIM_TORCH_MUSA": version, "TORCHADA_SIM_DEVICES": "2", "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-m", "tests.simulator.conformance", "--observe", version]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=280)
    if done.returncode:
        raise RuntimeError(f"comparing with torch_musa {version} failed\n{done.stdout}\n{done.stderr}")
    return json.loads(done.stdout.splitlines()[-1])


def counts(found: dict[str, list[str]]) -> dict[str, int]:
    """How many places are equal, deviate, are absent."""
    seen = Counter(state for state, _ in found.values())
    return {state: seen[state] for state in (EQUAL, DEVIATING, ABSENT)}


def judge(version: str, found: dict[str, list[str]]) -> tuple[dict[str, list[str]], list[str]]:
    """(differences that are not in the reviewed list, entries of the list that match nothing)."""
    listed = deviations(version)
    used: set[str] = set()
    unlisted = {}
    for where, (state, what) in found.items():
        if state == EQUAL:
            continue
        pattern = where if where in listed else next((p for p in listed if fnmatch.fnmatchcase(where, p)), None)
        if pattern is None:
            unlisted[where] = [state, what]
        else:
            used.add(pattern)
    return unlisted, sorted(set(listed) - used)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulator.conformance", description=__doc__)
    parser.add_argument("--observe", help=argparse.SUPPRESS)
    parser.add_argument("--version", choices=VERSIONS, action="append", help="only this version (may be repeated)")
    options = parser.parse_args()
    if options.observe:
        print(json.dumps(observe(options.observe)))
        return 0
    status = 0
    for version in options.version or VERSIONS:
        found = collect(version)
        unlisted, stale = judge(version, found)
        seen = counts(found)
        print(f"torch_musa {version}: " + ", ".join(f"{number} {state}" for state, number in seen.items()))
        for where, (state, what) in unlisted.items():
            print(f"  not in the list: {where} {what if state != ABSENT else state}")
        for pattern in stale:
            print(f"  listed for nothing: {pattern}")
        status = status or int(bool(unlisted or stale))
    return status


if __name__ == "__main__":
    sys.exit(main())
