"""Builds a private copy of _detour and the module it is tried on. Needs no torch: see docs/detour.md for other Pythons.

A private copy, because its state is per process and the copy torchada uses may be armed.
"""

import importlib.machinery
import importlib.util
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

HERE = Path(__file__).resolve().parent
SOURCES = {"victim": HERE / "victim.c", "_detour": HERE.parent.parent / "torchada" / "_detour.c"}


def load(path: Path, name: str) -> ModuleType:
    loader = importlib.machinery.ExtensionFileLoader(name, str(path))
    spec = importlib.util.spec_from_file_location(name, path, loader=loader)
    assert spec is not None
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """Compile one of SOURCES; DETOUR_CFLAGS adds options (sanitizers). No compiler is an error, not a skip."""
    folder = tmp_path_factory.mktemp("build")

    def build(name: str) -> Path:
        out = folder / (name + sysconfig.get_config_var("EXT_SUFFIX"))
        if not out.exists():
            compiler = shlex.split(sysconfig.get_config_var("CC") or "cc")
            if shutil.which(compiler[0]) is None:
                compiler = ["cc"]
            options = ["-std=c11", "-O2", "-g", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror"]
            options += ["-Wno-unused-parameter", "-Wno-missing-field-initializers", "-Wno-cast-function-type"]
            include = sysconfig.get_paths()["include"]
            extra = shlex.split(os.environ.get("DETOUR_CFLAGS", ""))
            command = [*compiler, *options, *extra, f"-I{include}", str(SOURCES[name]), "-o", str(out)]
            done = subprocess.run(command, capture_output=True, text=True)
            assert done.returncode == 0, f"{shlex.join(command)}\n{done.stderr}"
        return out

    return build


@pytest.fixture(scope="session")
def victim(build: Callable[[str], Path]) -> Any:
    module = load(build("victim"), "victim")
    sys.modules["victim"] = module  # pickle finds its functions by name
    return module


@pytest.fixture(scope="session")
def new_copy(build: Callable[[str], Path], tmp_path_factory: pytest.TempPathFactory) -> Callable[[], Any]:
    """Another copy of _detour with a state of its own."""

    def new_copy() -> Any:
        path = tmp_path_factory.mktemp("copy") / build("_detour").name
        shutil.copy(build("_detour"), path)
        return load(path, "_detour")

    return new_copy


@pytest.fixture(scope="session")
def shared_copy(new_copy: Callable[[], Any]) -> Any:
    return new_copy()


@pytest.fixture
def detour(shared_copy: Any, victim: Any) -> Any:
    """_detour, configured cuda -> musa with native devices; every test has to undo what it redirects."""
    table = {"cuda": "musa", **{f"cuda:{i}": f"musa:{i}" for i in range(64)}}
    devices = {victim.Device(old): victim.Device(new) for old, new in table.items()}
    assert shared_copy.configure(table, victim.Device, devices) == "payload"
    return shared_copy
