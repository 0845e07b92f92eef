"""report and doctor tell what is."""

import json
import subprocess
import sys

from torchada.ledger import Ledger
from torchada.report import rows
from torchada.rules import Facts, Table, load_table


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
