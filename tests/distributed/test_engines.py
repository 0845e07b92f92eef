"""Training engines over two processes: they launch, connect by NCCL's name, and train as one process would.

A test is defined where its package is installed; the ``test`` extra brings accelerate and Lightning.
"""

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launch import environment
from torchada.simulator import build

pytestmark = pytest.mark.timeout(600)  # a module's jobs run in the set-up of its first test
PROGRAM = str(Path(__file__).parent / "engines.py")
TORCHRUN = ("-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2")


def train(folder: Path, *command: str) -> list[dict[str, object]]:
    """What the two processes report after they have compared their parameters with plain training."""
    build.ensure("_MCCL")
    done = subprocess.run(
        [sys.executable, "-m", "torchada", "--simulate", *command],
        env=environment(2) | {"REPORTS": str(folder), "HF_HUB_OFFLINE": "1"},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return [json.loads(path.read_text()) for path in sorted(folder.glob("[a-z]*[01]"))]


def reports(backend: str) -> list[dict[str, object]]:
    return [{"device": rank, "backend": backend, "rank": rank} for rank in (0, 1)]


if importlib.util.find_spec("accelerate"):

    @pytest.mark.slow
    def test_accelerate(tmp_path: Path):
        launch = ("-m", "accelerate.commands.launch", "--multi_gpu", "--num_processes", "2", "--main_process_port", "0")
        assert train(tmp_path, *launch, PROGRAM, "accelerate") == reports("mccl")  # it knows MUSA by itself


if importlib.util.find_spec("lightning"):

    @pytest.mark.slow
    def test_lightning(tmp_path: Path):
        assert train(tmp_path, PROGRAM, "lightning") == reports("nccl")


if importlib.util.find_spec("deepspeed"):

    @pytest.mark.parametrize("stage", ["plain", "zero"])
    def test_deepspeed(tmp_path: Path, stage: str):
        assert train(tmp_path, *TORCHRUN, PROGRAM, "deepspeed", stage) == reports("nccl")
