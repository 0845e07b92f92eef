"""Synthetic packages: the same module twice, one masqueraded and one not."""

import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest


@pytest.fixture
def write(tmp_path: Path) -> Callable[..., Path]:
    """Write a file below the folder in which ``run_python`` runs; the path of it."""

    def write_file(name: str, text: str) -> Path:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(textwrap.dedent(text))
        return path

    return write_file


@pytest.fixture
def masked(run_python: Callable) -> Callable:
    """Run code with some modules masqueraded, torchada active: ``masked("pkg", "import pkg; ...")``."""

    def run(names: str | None, code: str, *, options: tuple = (), ok: bool = True, env: dict | None = None):
        prefix = "import torchada\n"
        return run_python(
            prefix + textwrap.dedent(code), env={"TORCHADA_MASQUERADE": names} | (env or {}), options=options, ok=ok
        )

    return run
