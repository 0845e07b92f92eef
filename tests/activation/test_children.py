"""Child processes inherit activation, however the parent was switched on; and only they do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import pytest

from tests.activation.support import VIA, Environment
from torchada.inherit import SITE, disinherit, inherit

PROGRAM = """
import multiprocessing, subprocess, sys

def how(_=None):
    startup = sys.modules.get("torchada.startup")
    return startup.state["via"] if startup else "off"

if __name__ == "__main__":
    print(how())
    code = "import subprocess, sys; subprocess.run([sys.executable, '-c', sys.argv[1]])"
    via = "import sys; s = sys.modules.get('torchada.startup'); print(s.state['via'] if s else 'off')"
    print(subprocess.check_output([sys.executable, "-c", via], text=True).strip())
    print(subprocess.check_output([sys.executable, "-c", code, via], text=True).strip())  # a grandchild
    for method in ("fork", "spawn", "forkserver"):
        with multiprocessing.get_context(method).Pool(1) as pool:
            print(pool.map(how, [0])[0])
"""


@pytest.fixture
def program(tmp_path: Path) -> str:
    path = tmp_path / "program.py"
    path.write_text(PROGRAM)
    return str(path)


def test_start_file_reaches_children(active: Environment, program: str) -> None:
    assert active.run(program).lines() == ["pth"] * 6


def test_command_line_reaches_children(dormant: Environment, program: str) -> None:
    by = "python -m torchada"
    assert dormant.run("-m", "torchada", program).lines() == [by, "inherited", "inherited", by, *["inherited"] * 2]


def test_import_reaches_children(dormant: Environment, program: str) -> None:
    Path(program).write_text("import torchada\n" + PROGRAM)
    # Under spawn and forkserver the child starts active by inheritance before it runs the import in the program.
    expected = ["import", "inherited", "inherited", "import", "inherited", "inherited"]
    assert dormant.run(program).lines() == expected


def test_program_without_torchada_reaches_nobody(dormant: Environment, program: str) -> None:
    assert dormant.run(program).lines() == ["off"] * 6


def test_switched_off_reaches_children(active: Environment, dormant: Environment, program: str) -> None:
    off = {"TORCHADA": "0"}
    assert active.run(program, env=off).lines() == ["None"] * 6
    assert dormant.run("-m", "torchada", program, env=off).lines() == ["off"] * 6


def test_other_python_is_left_alone(dormant: Environment, tmp_path: Path) -> None:
    """A child from another environment has its own torch: it does not inherit, and does not fail."""
    other = Environment(tmp_path / "other")
    code = f"import torchada, subprocess; print(subprocess.check_output([{other.python!r}, '-c', {VIA!r}], text=True))"
    result = dormant.run("-c", code)
    assert result.lines()[0] == "off"
    assert result.stderr == ""


def test_stale_variable_is_harmless(dormant: Environment) -> None:
    """torchada was uninstalled while a process that had inherited it lives on."""
    gone = {"PYTHONPATH": "/no/such/torchada/_site", "TORCHADA_INHERIT": str(dormant.path)}
    result = dormant.run("-c", "print('started')", env=gone)
    assert (result.lines(), result.stderr) == (["started"], "")


@pytest.mark.parametrize("before", [None, "", "/a", "/a:/b", ":/a"])
def test_undo(before: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHADA_INHERIT", raising=False)
    if before is None:
        monkeypatch.delenv("PYTHONPATH", raising=False)
    else:
        monkeypatch.setenv("PYTHONPATH", before)
    for _ in range(2):
        inherit()
    assert os.environ["PYTHONPATH"] == SITE + (":" + before if before else "")
    assert os.environ["TORCHADA_INHERIT"] == sys.prefix
    for _ in range(2):
        disinherit()
    assert os.environ.get("PYTHONPATH") == (before or None)  # empty and unset are the same to Python
    assert "TORCHADA_INHERIT" not in os.environ


def test_entry_of_the_user_stays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHADA_INHERIT", raising=False)
    monkeypatch.setenv("PYTHONPATH", SITE)
    inherit()
    disinherit()
    assert os.environ["PYTHONPATH"] == SITE


def test_deactivate_reaches_children(dormant: Environment) -> None:
    code = (
        "import torchada, subprocess, sys, os; torchada.deactivate(); "
        f"print(subprocess.check_output([sys.executable, '-c', {VIA!r}], text=True).strip(), "
        "[name for name in os.environ if name in ('PYTHONPATH', 'TORCHADA_INHERIT')])"
    )
    assert dormant.run("-c", code).lines() == ["off []"]


def test_no_trace_in_an_environment_with_start_files(active: Environment) -> None:
    code = "import torchada, os, json; print(json.dumps(dict(os.environ)))"
    (line,) = active.run("-c", code).lines()
    assert not {name for name in json.loads(line) if name.startswith(("PYTHON", "TORCHADA"))}
