"""Options and commands of ``python -m torchada``; how programs run is in test_run.py."""

from __future__ import annotations

import json

import pytest

import torchada
from tests.activation.support import Environment
from torchada.run import UsageError, interpreter_options

SIMULATION = (
    "import os, json; print(json.dumps([os.environ.get('TORCHADA_SIMULATE'), os.environ.get('TORCHADA_SIM_DEVICES')]))"
)


@pytest.mark.parametrize("arguments", [[], ["-h"], ["--help"], ["--simulate", "--help"]], ids=" ".join)
def test_help(active: Environment, arguments: list[str]) -> None:
    result = active.run("-m", "torchada", *arguments)
    assert result.lines()[0].startswith("usage: python -m torchada [options] script.py")
    assert result.stderr == ""


def test_version(active: Environment) -> None:
    assert active.run("-m", "torchada", "--version").lines() == [f"torchada {torchada.__version__}"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--simulate"], ["1", None]),
        (["--devices", "4"], ["1", "4"]),
        (["--devices=0"], ["1", "0"]),
        (["--simulate", "--devices", "16"], ["1", "16"]),
    ],
    ids=lambda value: " ".join(map(str, value)),
)
def test_simulation(dormant: Environment, options: list[str], expected: list[str | None]) -> None:
    (line,) = dormant.run("-m", "torchada", *options, "-c", SIMULATION).lines()
    assert json.loads(line) == expected


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--simulated", "x.py"], "unknown option --simulated"),
        (["-u", "x.py"], "unknown option -u (options of python itself go in front"),
        (["--simulate=2"], "option --simulate takes no value"),
        (["--devices"], "--devices takes a whole number from 0 to 16, not ''"),
        (["--devices", "17", "x.py"], "not '17'"),
        (["--devices=-1", "x.py"], "not '-1'"),
        (["--devices", "two", "x.py"], "not 'two'"),
        (["--devices", "\u0664", "x.py"], "not '\u0664'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_wrong_use(dormant: Environment, options: list[str], message: str) -> None:
    result = dormant.run("-m", "torchada", *options)
    assert (result.returncode, result.stdout) == (2, "")
    lines = result.stderr.splitlines()
    assert lines[0].startswith("usage: ") and lines[-1].startswith("torchada: ") and message in lines[-1]


def test_unknown_option_of_a_command(active: Environment) -> None:
    result = active.run("-m", "torchada", "status", "--yaml")
    assert result.returncode == 2
    assert "usage: python -m torchada status" in result.stderr and "--yaml" in result.stderr


def test_program_options_are_the_programs(dormant: Environment) -> None:
    code = "import sys; print(sys.argv[1:])"
    result = dormant.run("-m", "torchada", "-c", code, "--help", "--version", "status", "--devices")
    assert result.lines() == ["['--help', '--version', 'status', '--devices']"]


@pytest.mark.parametrize(
    ("orig", "argv", "expected"),
    [
        (["py", "-m", "torchada", "x"], ["f", "x"], []),
        (["py", "-Im", "torchada"], ["f"], ["-I"]),
        (["py", "-mtorchada", "-m", "torchada"], ["f", "-m", "torchada"], []),
        (["py", "-X", "-m", "-m", "torchada"], ["f"], ["-X", "-m"]),
        (["py", "-uWignore", "-m", "torchada"], ["f"], ["-uWignore"]),
        (["py", "/bin/torchada", "x"], ["/bin/torchada", "x"], []),
        (["py", "-u", "/bin/torchada"], ["/bin/torchada"], ["-u"]),
    ],
)
def test_interpreter_options(orig: list[str], argv: list[str], expected: list[str]) -> None:
    assert interpreter_options(orig, argv) == expected


@pytest.mark.parametrize(
    ("orig", "argv"),
    [
        (["py", "-m", "pdb", "-m", "torchada", "x"], ["f", "x"]),
        (["py", "-um", "coverage", "run", "-m", "torchada"], ["f"]),
        (["py", "/bin/coverage", "run", "-m", "torchada"], ["f"]),
        (["py", "-c", "code", "-m", "torchada"], ["f"]),
    ],
)
def test_interpreter_of_another_tool(orig: list[str], argv: list[str]) -> None:
    with pytest.raises(UsageError, match="torchada has to come first"):
        interpreter_options(orig, argv)
