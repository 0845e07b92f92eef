"""The .pth and .start files: what an interpreter start does, whatever state torchada is in."""

from __future__ import annotations

import json
import pkgutil
import shutil
import time

import pytest

from tests.activation.support import ROOT, Environment

MODULES = "import sys, json; print(json.dumps(sorted(sys.modules)))"
SENTINELS = (
    "import sys; print(sum(type(finder).__module__.startswith('torchada') for finder in sys.meta_path), "
    "'torchada' in sys.modules)"
)


def test_installing_the_wheel_switches_on(active: Environment) -> None:
    assert active.via() == "pth"
    assert active.run("-c", SENTINELS).lines() == ["1 True"]


@pytest.mark.parametrize("option", ["-I", "-E", "-s", "-O", "-P"])
def test_interpreter_options(active: Environment, option: str) -> None:
    if active.run(option, "-c", "pass").returncode == 2:
        assert option == "-P"  # came with Python 3.11
        return
    assert active.via(option) == "pth"


def test_without_site_it_is_off(active: Environment) -> None:
    assert active.via("-S") == "off"
    assert active.run("-S", "-c", SENTINELS).lines() == ["0 False"]


def test_start_imports_nothing_else(active: Environment, dormant: Environment) -> None:
    (with_it,), (without,) = active.run("-c", MODULES).lines(), dormant.run("-c", MODULES).lines()
    extra = set(json.loads(with_it)) - set(json.loads(without))
    assert extra == {"torchada", "torchada.startup", "torchada.inherit"}


def test_environment_is_left_alone(active: Environment) -> None:
    code = "import os, json; print(json.dumps(dict(os.environ)))"
    (with_it,) = active.run("-c", code).lines()
    names = {name for name in json.loads(with_it) if name.startswith(("TORCHADA", "PYTHON"))}
    assert names == set()


def test_cost_of_a_start(active: Environment, dormant: Environment) -> None:
    """Printed, not asserted: the budget is 3 ms, and bench/ measures it properly."""

    def best(environment: Environment) -> float:
        times = []
        for _ in range(10):
            begin = time.perf_counter()
            environment.run("-c", "pass")
            times.append(time.perf_counter() - begin)
        return min(times)

    print(f"interpreter start: {1000 * (best(active) - best(dormant)):+.2f} ms by torchada.pth")


def test_run_twice_is_run_once(active: Environment) -> None:
    """Some Linux virtual environments have lib64 as a link to lib, and site reads both."""
    result = active.run("-c", f"import site; site.addsitedir({str(active.site)!r}); {SENTINELS}")
    assert result.lines() == ["1 True"]
    assert result.stderr == ""


@pytest.mark.parametrize("word", ["0", "false", "no", "off", "OFF"])
def test_switched_off(active: Environment, word: str) -> None:
    result = active.run("-c", SENTINELS, env={"TORCHADA": word})
    assert result.lines() == ["0 True"]
    assert result.stderr == ""


def test_wrong_word(active: Environment) -> None:
    result = active.run("-c", "print('started')", env={"TORCHADA": "perhaps"})
    assert result.lines() == ["started"]
    (line,) = result.stderr.splitlines()
    assert "TORCHADA='perhaps'" in line and "0 (off)" in line and "1 (on)" in line
    assert "delete" not in line


def assert_one_short_line(environment: Environment, *words: str) -> None:
    code = f"import site; site.addsitedir({str(environment.site)!r}); print('started')"  # read twice, told once
    result = environment.run("-c", code)
    assert result.lines() == ["started"]
    (line,) = result.stderr.splitlines()
    assert line.startswith("torchada: not active: ")
    assert all(word in line for word in (*words, "delete torchada.pth", str(environment.site)))


def test_package_removed_by_hand(fresh: Environment) -> None:
    shutil.rmtree(fresh.site / "torchada")
    assert_one_short_line(fresh, "No module named 'torchada'")


def test_package_half_removed(fresh: Environment) -> None:
    shutil.rmtree(fresh.site / "torchada")
    (fresh.site / "torchada").mkdir()
    assert_one_short_line(fresh, "No module named 'torchada.startup'")


@pytest.mark.parametrize("module", ["__init__", "startup", "inherit"])
@pytest.mark.parametrize("damage", ["def (", "raise KeyError('damaged')"])
def test_package_broken(fresh: Environment, module: str, damage: str) -> None:
    (fresh.site / "torchada" / f"{module}.py").write_text(damage)
    assert_one_short_line(fresh, "SyntaxError" if damage == "def (" else "KeyError: 'damaged'")


def test_uninstall_leaves_nothing(fresh: Environment) -> None:
    fresh.pip("uninstall", "--quiet", "--yes", "torchada")
    assert not list(fresh.site.glob("torchada*"))
    result = fresh.run("-c", SENTINELS)
    assert result.lines() == ["0 False"]
    assert result.stderr == ""


def test_start_file_is_well_formed(fresh: Environment) -> None:
    """PEP 829: one ``package.module:callable`` a line, called without arguments (Python 3.15 and later)."""
    text = (ROOT / "torchada" / "_site" / "torchada.start").read_text("utf-8")
    (entry,) = [line for line in text.splitlines() if line and not line.startswith("#")]
    assert callable(pkgutil.resolve_name(entry))
    (fresh.site / "torchada.pth").unlink()
    code = (
        f"import pkgutil, sys; pkgutil.resolve_name({entry!r})(); print(sys.modules['torchada.startup'].state['via'])"
    )
    assert fresh.run("-c", code).lines() == ["start"]
