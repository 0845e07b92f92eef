"""docs/examples/distributed: CUDA programs under torchrun, with and without a line for torchada."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.programs.support import has_no_vendor_name
from torchada.simulator import build

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = sorted((ROOT / "docs" / "examples" / "distributed").glob("*.py"))


def torchrun(folder: Path, program: Path, *before: str) -> str:
    build.ensure("_MCCL")
    env = {key: value for key, value in os.environ.items() if not key.startswith("TORCHADA")}
    env |= {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "GLOO_SOCKET_IFNAME": "lo"}
    if "TORCHADA_SIM_CACHE" in os.environ:
        env["TORCHADA_SIM_CACHE"] = os.environ["TORCHADA_SIM_CACHE"]
    if not before:
        env["TORCHADA_SIMULATE"] = "1"
    launcher = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2", str(program))
    done = subprocess.run(
        [sys.executable, *before, *launcher], env=env, cwd=folder, capture_output=True, text=True, timeout=150
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def losses(output: str) -> list[float]:
    return [float(text) for text in re.findall(r"loss ([\d.]+)", output)]


def test_the_examples_know_nothing_of_us():
    assert len(PROGRAMS) == 3
    assert all(has_no_vendor_name(program.read_text()) for program in PROGRAMS)


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_two_processes_learn(tmp_path: Path, program: Path):
    found = losses(torchrun(tmp_path, program, "-m", "torchada", "--simulate"))
    assert len(found) >= 2 and found[-1] < 0.9 * found[0], found


@pytest.mark.slow
@pytest.mark.parametrize("program", PROGRAMS, ids=lambda path: path.stem)
def test_with_an_activation_line(tmp_path: Path, program: Path):
    (tmp_path / program.name).write_text("import torchada\n" + program.read_text())
    found = losses(torchrun(tmp_path, tmp_path / program.name))
    assert found[-1] < 0.9 * found[0], found
