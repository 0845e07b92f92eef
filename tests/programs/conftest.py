"""One session-wide set of finished program runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.activation.support import ROOT, clean_environment, installed
from tests.programs.support import Ways


@pytest.fixture(scope="session")
def ways(tmp_path_factory: pytest.TempPathFactory) -> Ways:
    """Everything needed to run a program in each way, with a fresh environment that has the wheel."""
    folder = tmp_path_factory.mktemp("programs")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder), str(ROOT)]
    done = subprocess.run(build, env=clean_environment(), capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = folder.glob("*.whl")
    return Ways(folder, installed(folder / "environment", wheel).python)
