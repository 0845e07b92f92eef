"""Real virtual environments with a real wheel: what a user gets, not what this test process happens to be."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).parents[2]
VIA = "import sys; s = sys.modules.get('torchada.startup'); print(s.state['via'] if s else 'off')"


def clean_environment() -> dict[str, str]:
    """This process's variables without what torchada or a Python-wide setting put there."""
    return {name: value for name, value in os.environ.items() if not name.startswith(("TORCHADA", "PYTHON"))}


class Result(subprocess.CompletedProcess):
    """A finished process."""

    def lines(self) -> list[str]:
        assert self.returncode == 0, f"{self.args} gave {self.returncode}:\n{self.stdout}\n{self.stderr}"
        return self.stdout.splitlines()


class Environment:
    """A virtual environment; third-party packages come from the one the tests run in."""

    def __init__(self, path: Path, make: bool = True) -> None:
        self.path = path
        self.python = str(path / "bin" / "python")
        tag = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.site = path / "lib" / tag / "site-packages"
        if not make:  # it is there
            return
        command = [sys.executable, "-m", "venv", "--without-pip", str(path)]
        subprocess.run(command, check=True, env=clean_environment())
        # As a path only: start files that lie there are not read, so an installed torchada does not leak in.
        (self.site / "aa_outer.pth").write_text(sysconfig.get_path("purelib") + "\n")

    def run(self, *arguments: str, program: str | None = None, **options) -> Result:
        """Run *program* (default: this environment's Python)."""
        environment = clean_environment() | options.pop("env", {})
        options = {"timeout": 120, "cwd": self.path, **options}
        command = [program or self.python, *arguments]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, **options)
        return Result(command, done.returncode, done.stdout, done.stderr)

    def via(self, *options: str, **more) -> str:
        """How a Python started here with *options* is switched on, or "off"."""
        return self.run(*options, "-c", VIA, **more).lines()[0]

    def pip(self, *arguments: str) -> None:
        """The outer pip, at work in this environment."""
        command = [sys.executable, "-m", "pip", "--python", self.python, *arguments]
        done = subprocess.run(command, env=clean_environment(), capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr


def installed(path: Path, wheel: Path) -> Environment:
    """An environment at *path* with the wheel in it."""
    environment = Environment(path)
    environment.pip("install", "--quiet", "--no-index", "--no-deps", str(wheel))
    return environment
