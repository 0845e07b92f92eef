"""One session-wide set of finished program runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.activation.support import installed
from tests.programs.support import Ways


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Ways:
    """Everything needed to run a program in each way, with a fresh environment that has the wheel."""
    folder = tmp_path_factory.mktemp("programs")
    return Ways(folder, installed(folder / "environment", wheel).python)
