"""Environments to run things in; see support.py."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.activation.support import ROOT, Environment, clean_environment, installed


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the sdist of this checkout and the wheel that was built from that sdist."""
    target = tmp_path_factory.mktemp("dist")
    build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(target), str(ROOT)]
    done = subprocess.run(build, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return target


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture
def fresh(tmp_path: Path, wheel: Path) -> Environment:
    """An environment of the test's own, with torchada installed from the wheel."""
    return installed(tmp_path / "environment", wheel)


@pytest.fixture(scope="session")
def active(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """A shared environment with the wheel as it installs, start files included. Do not change it."""
    return installed(tmp_path_factory.mktemp("active") / "environment", wheel)


@pytest.fixture(scope="session")
def dormant(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Environment:
    """A shared environment with the wheel, but without its start files. Do not change it."""
    environment = installed(tmp_path_factory.mktemp("dormant") / "environment", wheel)
    for name in ("torchada.pth", "torchada.start"):
        (environment.site / name).unlink()
    return environment
