"""report and doctor tell what is."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchada
from torchada.enable import PRIVATE
from torchada.gates import Facts
from torchada.ledger import Ledger
from torchada.report import VARIABLES, rows
from torchada.rules import Table, load_table


def command(run_python, *args, env=None, ok=True):
    code = (
        "import sys, runpy; sys.argv = ['torchada', *sys.argv[1:]]; runpy.run_module('torchada', run_name='__main__')"
    )
    return run_python(code, *args, env=env, ok=ok)


def test_rows_is_a_pure_function():
    table = load_table()
    before = rows(table, None, Ledger())
    assert {row.outcome for row in before} == {"off"}
    ledger = Ledger()
    ledger.add(table.rules[0].id, "failed", "planted")
    after = rows(table, Facts("musa"), ledger)
    assert (after[0].outcome, after[0].detail) == ("failed", "planted")
    assert len(after) == len(table.rules) == len(before)
    assert rows(Table([], []), None, Ledger()) == []


def test_report_as_json_and_text(run_python):
    done = command(run_python, "report", "--json")
    told = json.loads(done.stdout)
    assert told["status"]["active"] is True and told["status"]["platform"] == "musa"
    assert len(told["rules"]) == len(load_table().rules)
    assert all(row["why"] and row["test"] for row in told["rules"])
    assert not [row for row in told["rules"] if row["outcome"] == "failed"]
    text = command(run_python, "report", "--outcome", "gated").stdout
    assert "TORCHADA_FORCE_CUDA_AVAILABLE" in text and "torch:zeros" not in text
    assert f"{len(told['rules'])} rules" in text


def test_doctor_is_content_here(run_python):
    done = command(run_python, "doctor", "--json")
    told = json.loads(done.stdout)
    assert told["ok"] is True
    checks = {check["name"]: check for check in told["checks"]}
    assert checks["devices"]["text"].startswith("2 x ") and "(simulated)" in checks["devices"]["text"]
    assert "torchada.simulator._Finder" in checks["sys.meta_path"]["text"]
    assert "TORCHADA_SIMULATE=1" in checks["environment"]["text"]
    assert "ok" in command(run_python, "doctor").stdout


def test_doctor_names_what_is_wrong(run_python):
    for env, word in (
        ({"TORCHADA_PLATFORM": "rocm"}, "cuda, musa, cpu"),
        ({"TORCHADA_SIM_DEVICES": "many"}, "TORCHADA_SIM_DEVICES"),
    ):
        done = command(run_python, "doctor", "--json", env=env, ok=False)
        assert done.returncode == 1
        told = json.loads(done.stdout)
        assert told["ok"] is False
        assert any(word in check["text"] and check["fix"] for check in told["checks"] if check["level"] == "bad")


def test_doctor_on_a_cpu_machine_and_switched_off(run_python):
    cpu = json.loads(command(run_python, "doctor", "--json", env={"TORCHADA_SIMULATE": None}).stdout)
    assert cpu["ok"] and any("inert" in check["text"] and "--simulate" in check["fix"] for check in cpu["checks"])
    off = json.loads(command(run_python, "doctor", "--json", env={"TORCHADA": "0"}).stdout)
    assert off["ok"] and any("TORCHADA=0" in check["text"] for check in off["checks"])


def test_doctor_without_torch(tmp_path):
    """An interpreter that has torchada's dependencies but no torch."""
    import packaging
    import rich
    import wrapt

    from tests.conftest import ROOT

    places = {str(next(iter(module.__path__)).rpartition("/")[0]) for module in (packaging, rich, wrapt)}
    bare = tmp_path / "bare"
    bare.mkdir()
    for place in places:
        for name in ("packaging", "rich", "wrapt", "pygments", "markdown_it", "mdurl"):
            if (bare / name).exists() is False:
                (bare / name).symlink_to(f"{place}/{name}")
    code = f"""
import sys
sys.path[:0] = [{str(ROOT)!r}, {str(bare)!r}]
from torchada.report import main
sys.exit(main('doctor', ['--json']))
"""
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 1, done.stderr
    told = json.loads(done.stdout)
    assert any(check["name"] == "torch" and check["level"] == "bad" for check in told["checks"])


def test_doctor_and_report_survive_a_torch_musa_that_is_not_whole(run_python, tmp_path):
    """Whatever is broken, the doctor tells it; nothing is half applied."""
    package = tmp_path / "torch_musa"
    package.mkdir()
    (package / "__init__.py").write_text("__version__ = '2.7.0'\n")
    env = {"TORCHADA_SIMULATE": None}  # the package lies in the working directory
    done = command(run_python, "doctor", env=env, ok=False)
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "no device backend named 'musa'" in done.stdout
    done = command(run_python, "report", env=env, ok=False)
    assert "Traceback" not in done.stderr and "state off" in done.stdout
    done = run_python(
        "import os, torchada, torch; print(torch.ones(1).item(), torchada.is_active(), torchada.status()['error']);"
        "print('TORCHADA_INHERIT' in os.environ)",
        env=env,
    )
    assert done.stdout.startswith("1.0 False the torch_musa from") and done.stdout.endswith("False\n")
    assert done.stderr.count("could not be armed") == 1


def test_doctor_knows_every_variable_and_tells_a_misspelt_one(run_python):
    root = Path(torchada.__file__).parent
    files = [path for path in root.rglob("*") if path.suffix in (".py", ".cpp", ".h", ".c")]
    files = [path for path in files if "stable_compat" not in path.parts]  # headers for extensions, with macros
    used = {name for path in files for name in re.findall(r"\bTORCHADA(?:_[A-Z]+)+(?:(?<=LOG)_)?\b", path.read_text())}
    assert used | {"TORCHADA"} == {*VARIABLES, *PRIVATE}
    done = command(run_python, "doctor", env={"TORCHADA_SIM_DEVICE_COUNT": "3"})
    assert "does not know TORCHADA_SIM_DEVICE_COUNT" in " ".join(done.stdout.split())
    assert "does not know" not in command(run_python, "doctor").stdout


@pytest.mark.parametrize("what", [("report",), ("doctor",), ("status",), ("--summary", "-c", "import torch")])
@pytest.mark.parametrize("name", ["TORCHADA_PLATFORM", "TORCHADA_STRICT", "TORCHADA_SIMULATE", "TORCHADA"])
def test_commands_tell_a_wrong_variable_without_a_traceback(run_python, what, name):
    code = "import os, sys; os.execv(sys.executable, [sys.executable, '-m', 'torchada', *sys.argv[1:]])"
    done = run_python(code, *what, env={name: "perhaps"}, ok=False)
    assert "Traceback" not in done.stderr, done.stderr
    assert f"{name}='perhaps'" in done.stderr + done.stdout or f"{name}=perhaps" in done.stdout


@pytest.mark.parametrize("name", ["packaging", "rich", "wrapt"])
def test_a_missing_dependency_is_named_and_torch_works(run_python, tmp_path, name):
    (tmp_path / f"{name}.py").write_text(f"raise ModuleNotFoundError('gone', name={name!r})\n")
    done = command(run_python, "doctor", ok=False)
    assert done.returncode == 1 and f"pip install {name}" in done.stderr and "Traceback" not in done.stderr
    done = run_python("import torchada, torch; print(torch.ones(1).item())")
    assert done.stdout.strip() == "1.0" and "Traceback" not in done.stderr


def test_an_outcome_that_does_not_exist(run_python):
    done = command(run_python, "report", "--outcome", "borken", ok=False)
    assert done.returncode == 2 and "failed" in done.stderr
