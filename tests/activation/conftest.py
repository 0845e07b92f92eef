"""Environments to run things in; see support.py."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.activation.support import Environment, installed

MadeOnce = Callable[[str, Callable[[Path], object]], Path]


@pytest.fixture
def fresh(tmp_path: Path, wheel: Path) -> Environment:
    """An environment of the test's own, with torchada installed from the wheel."""
    return installed(tmp_path / "environment", wheel)


@pytest.fixture(scope="session")
def active(made_once: MadeOnce, wheel: Path) -> Environment:
    """A shared environment with the wheel as it installs, start files included. Do not change it."""
    return Environment(made_once("active", lambda folder: installed(folder, wheel)), make=False)


@pytest.fixture(scope="session")
def dormant(made_once: MadeOnce, wheel: Path) -> Environment:
    """A shared environment with the wheel, but without its start files. Do not change it."""

    def make(folder: Path) -> None:
        environment = installed(folder, wheel)
        for name in ("torchada.pth", "torchada.start"):
            (environment.site / name).unlink()

    return Environment(made_once("dormant", make), make=False)
