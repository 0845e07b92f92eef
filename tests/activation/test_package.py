"""The wheel and the sdist: what is in them, and what a machine without a compiler is told."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email import message_from_bytes
from pathlib import Path

import pytest

from tests.activation.support import ROOT, Environment, clean_environment


def test_wheel_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        information = next(name for name in names if name.endswith(".dist-info/WHEEL"))
        facts = message_from_bytes(archive.read(information))
    outside = {name for name in names if not name.startswith("torchada/") and ".dist-info/" not in name}
    assert outside == {"torchada.pth", "torchada.start"}
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert {f"torchada/_detour{suffix}", f"torchada/_asker{suffix}", f"torchada/_rotation{suffix}"} <= names
    assert {"torchada/py.typed", "torchada/_site/sitecustomize.py", "torchada/_site/torchada.pth"} <= names
    assert not names & {"torchada/_build.py", "torchada/_detour.c", "torchada/_asker.c", "torchada/_rotation.c"}
    assert facts["Root-Is-Purelib"] == "false"
    assert "none-any" not in wheel.name


def test_wheel_has_every_source_file(wheel: Path) -> None:
    """In particular the simulator's C++ sources, which are compiled on the user's machine."""
    listed = subprocess.run(["git", "ls-files", "torchada"], cwd=ROOT, capture_output=True, text=True)
    if listed.returncode:  # not a checkout (an unpacked sdist): everything that lies there counts
        files = {str(path.relative_to(ROOT)) for path in (ROOT / "torchada").rglob("*") if path.is_file()}
        files = {name for name in files if "__pycache__" not in name and not name.endswith(".so")}
    else:
        files = set(listed.stdout.split())
    with zipfile.ZipFile(wheel) as archive:
        left_out = files - set(archive.namelist())
    assert left_out == {"torchada/_build.py", "torchada/_detour.c", "torchada/_asker.c", "torchada/_rotation.c"}


def test_sdist_contents(built: Path) -> None:
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    wanted = {
        "torchada/_detour.c",
        "torchada/_asker.c",
        "torchada/_rotation.c",
        "torchada/_build.py",
        "sitecustomize/sitecustomize.py",
    }
    assert wanted | {"README.md", "LICENSE", "CHANGELOG.md", "pyproject.toml"} <= names
    assert any(name.startswith("tests/") for name in names)


def test_metadata(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        name = next(name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        metadata = message_from_bytes(archive.read(name))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    assert sorted(line.partition(">")[0] for line in required) == ["packaging", "rich", "wrapt"]
    assert metadata["Requires-Python"] == ">=3.10"
    assert metadata["License-Expression"] == "MIT"


def test_editable_install(built: Path, tmp_path: Path) -> None:
    """Importable with its extension and without start files, until they are asked for."""
    (path,) = built.glob("*.tar.gz")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    (checkout,) = tmp_path.glob("torchada-*")
    environment = Environment(tmp_path / "environment")
    environment.pip("install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "-e", str(checkout))
    code = "import torchada._detour; print(torchada._detour.__file__)"
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    assert environment.run("-c", code).lines() == [f"{checkout}/torchada/_detour{suffix}"]
    assert environment.via() == "off"
    environment.run("-m", "torchada", "enable").lines()
    assert environment.via() == "pth"
    environment.run("-m", "torchada", "disable").lines()
    environment.pip("uninstall", "--quiet", "--yes", "torchada")
    assert not list(environment.site.glob("*torchada*"))


def test_no_compiler_is_one_line(tmp_path: Path) -> None:
    build = [sys.executable, "-m", "pip", "wheel", "--no-build-isolation", "--no-deps", "--no-index"]
    build += ["--wheel-dir", str(tmp_path), "."]
    environment = clean_environment() | {"CC": "no-such-compiler"}
    done = subprocess.run(build, cwd=ROOT, env=environment, capture_output=True, text=True)
    output = done.stdout + done.stderr
    assert done.returncode != 0
    assert "Traceback" not in output
    (line,) = [line for line in output.splitlines() if "no-such-compiler" in line]
    assert "install gcc and python3-dev" in line


def test_no_headers_is_one_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    spec = importlib.util.spec_from_file_location("build_hook", ROOT / "torchada" / "_build.py")
    assert spec is not None and spec.loader is not None
    hook = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(hook)
    assert hook.missing() is None
    monkeypatch.setattr(sysconfig, "get_path", lambda name: str(tmp_path))
    builder = hook.CustomBuildHook(str(ROOT), {}, None, None, str(tmp_path), "wheel")
    with pytest.raises(SystemExit, match=r"Python headers.*there is no .*Python.h: install gcc and python3-dev"):
        builder.initialize("standard", {})
