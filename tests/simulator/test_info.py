"""`torchada.simulator.info()`, its variables, and `python -m torchada simulate`."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import torchada
from torchada.facts import VARIABLES
from torchada.simulator import command, knobs, profiles

ROOT = Path(torchada.__file__).parent.parent


@pytest.fixture
def simulate(tmp_path, monkeypatch):
    """Run ``python -m torchada simulate`` with arguments; (exit status, standard output, standard error)."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    for name in knobs.KNOBS:
        if name != "TORCHADA_SIM_CACHE":
            monkeypatch.delenv(name, raising=False)

    def run(*arguments, **env):
        for name, value in env.items():
            monkeypatch.setenv(name, value)
        done = subprocess.run(
            [sys.executable, "-m", "torchada", "simulate", *arguments],
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=200,
        )
        return done.returncode, done.stdout, done.stderr

    return run


def test_every_variable_is_known_everywhere():
    sources = [p for p in (ROOT / "torchada").rglob("*") if p.suffix in (".py", ".cpp", ".h")]
    used = {name for path in sources for name in re.findall(r"TORCHADA_SIM_[A-Z_]*[A-Z]", path.read_text())}
    assert used == set(knobs.KNOBS)
    assert set(knobs.KNOBS) == {name for name in VARIABLES if name.startswith("TORCHADA_SIM_")}
    documented = (ROOT / "docs" / "simulator.md").read_text()
    assert all(f"`{name}`" in documented for name in knobs.KNOBS)
    assert all(knob.meaning and knob.default for knob in knobs.KNOBS.values())


def test_info_as_json(simulate):
    status, out, errors = simulate(
        "--info",
        "--json",
        TORCHADA_SIM_DEVICE="s80",
        TORCHADA_SIM_DEVICES="3",
        TORCHADA_SIM_DEFECTS="-all,+log_capture",
    )
    assert status == 0, errors
    found = json.loads(out)
    assert found["devices"] == 3 and found["built"] is True and found["installed"] is True
    assert found["device"] == {
        "name": "MTT S80 (simulated)",
        "capability": [2, 1],
        "architecture": "mp_21",
        "memory_bytes": 2 << 30,
        "multiprocessors": 32,
    }
    assert found["profile"] == {"key": "2.7.1", "version": "2.7.1+musa4.3.0", "musa": "4.3.0", "torch": "2.7.1"}
    assert found["defects"] == ["log_capture"]
    assert Path(found["library"]).is_file() and found["library"].startswith(found["cache"])
    assert found["knobs"]["TORCHADA_SIM_DEVICE"] == "s80" and found["knobs"]["TORCHADA_SIM_MEMORY"] is None


def test_info_as_text(simulate):
    status, out, errors = simulate("--info")
    assert status == 0, errors
    for text in ("MTT S5000 (simulated)", "3.1 (mp_31)", "10 GiB per device", "2.7.1+musa4.3.0", "cache"):
        assert text in out, text
    for name in profiles.DEFECTS:
        assert re.search(rf"^  {name} ", out, re.MULTILINE), name
    for name in knobs.KNOBS:
        assert name in out


def test_info_of_what_is_not_built(simulate, tmp_path):
    empty = tmp_path / "empty"
    status, out, errors = simulate("--info", TORCHADA_SIM_CACHE=str(empty), TORCHADA_SIM_DEVICES="0")
    assert status == 0, errors
    assert "no: the first use builds it" in out and str(empty) in out
    assert not empty.exists() and "building" not in errors


def test_info_of_a_build_container(simulate):
    status, out, errors = simulate("--info", "--json", TORCHADA_SIM_DEVICES="0")
    assert status == 0, errors
    assert json.loads(out)["devices"] == 0 and json.loads(out)["device"] is None


@pytest.mark.parametrize(
    "name, value, text",
    [
        ("TORCHADA_SIM_TORCH_MUSA", "3", "names no version; there are 2.5.0, "),
        ("TORCHADA_SIM_DEFECTS", "all", "takes +name and -name"),
        ("TORCHADA_SIM_DEVICE", "H100", "choose one of S80, S3000, S4000, S5000"),
    ],
)
def test_wrong_settings_are_told(simulate, name, value, text):
    status, out, errors = simulate("--info", **{name: value})
    assert status == 1 and out == "" and text in errors and "Traceback" not in errors


def test_a_program(simulate, tmp_path):
    (tmp_path / "program.py").write_text("import sys, torch\nprint(sys.argv, torch.ones(1, device='cuda').device)\n")
    status, out, errors = simulate("program.py", "--info", "x")
    assert (status, out) == (0, "['program.py', '--info', 'x'] musa:0\n"), errors
    status, out, errors = simulate("-c", "import torch; print(torch.musa.device_count())", TORCHADA_SIM_DEVICES="5")
    assert (status, out) == (0, "5\n"), errors


@pytest.mark.parametrize("arguments", [(), ("--json",), ("--inform",)])
def test_wrong_command_lines(capsys, arguments):
    with pytest.raises(SystemExit) as ended:
        command.main("simulate", list(arguments))
    assert ended.value.code == 2 and "usage: python -m torchada simulate --info" in capsys.readouterr().err


def test_help(capsys):
    with pytest.raises(SystemExit) as ended:
        command.main("simulate", ["--help"])
    assert ended.value.code == 0 and "--info" in capsys.readouterr().out


def test_info_in_a_program_imports_nothing(run_python):
    run_python(
        """
        import sys, torchada.simulator as simulator
        about = simulator.info()
        assert "torch" not in sys.modules and "torch_musa" not in sys.modules
        assert about["built"] is True and about["devices"] == 2 and about["device"] is None and not about["imported"]
        """,
        env={"TORCHADA": "0"},
    )
