"""CUDA programs over several processes: "nccl" is MCCL, and training gives the numbers of gloo on the CPU."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launch import PATHS, Job, run_job
from torchada.simulator import build

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)  # a module's jobs run in the set-up of its first test


def names(script: str) -> list[str]:
    """The checks of a script; importing it would change this process."""
    return re.findall(r"^@check\ndef (\w+)", (HERE / script).read_text(), re.MULTILINE)


def more(script: str) -> list[str]:
    return re.findall(r"^@cuda_check\ndef (\w+)", (HERE / script).read_text(), re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def built():
    build.ensure("_MCCL")  # before clocks run


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> Job:
    return run_job(HERE / "nccl_checks.py", 2, tmp_path_factory.mktemp("nccl"))


@pytest.mark.parametrize("name", names("nccl_checks.py"))
def test_two_ranks(checks: Job, name: str):
    assert [report.get(name) for report in checks.reports] == ["ok", "ok"], checks.text()
    assert "Assuming no hooks" not in checks.text()  # torch's complaint about a group without a default backend


def test_in_one_process(run_python):
    done = run_python(
        """
        import torch, torch.distributed as dist
        early = torch.device("cuda", 0)  # of a type that the accelerator does not have
        import torchada

        def start(backend, **more):
            dist.init_process_group(backend, store=dist.HashStore(), rank=0, world_size=1, **more)

        start("nccl", device_id=early)
        group = dist.new_group([0], device_id=early)
        print(early.type, dist.get_backend(group), dist.group.WORLD.bound_device_id, group.bound_device_id)
        dist.destroy_process_group()
        start("gloo")
        try:
            dist.all_reduce(torch.ones(1, device="cuda"))
        except RuntimeError as error:
            print(error)
        dist.destroy_process_group()
        from torch.distributed.rpc import TensorPipeRpcBackendOptions as Options
        print(Options(device_maps={"peer": {"cpu": "cpu"}}).device_maps["peer"])
        for use in (lambda: Options(device_maps={"peer": {0: 1}}), lambda: Options().set_devices(["cuda:0"])):
            try:
                use()
            except torchada.NotOnMusa as error:
                print(error)
        del dist.Backend._plugins["MCCL"]  # torch_musa was built without it
        print(dist.is_nccl_available(), dist.is_backend_available("cpu:gloo,cuda:nccl"))
        try:
            start("nccl")
        except RuntimeError as error:
            print(error)
        """,
        env={"PYTHONPATH": os.pathsep.join(PATHS)},
    )
    first, gloo, on_cpu, maps, devices, available, without = done.stdout.splitlines()
    assert first == "cuda nccl musa:0 musa:0" and available == "False False"
    assert gloo == "ProcessGroupGloo::allreduce: unsupported device type musa"
    assert on_cpu == "{device(type='cpu'): device(type='cpu')}"
    assert maps == devices and maps.startswith("torch.distributed.rpc with devices or device maps is not available")
    assert without.startswith("Distributed package doesn't have NCCL built in: ") and "gloo" in without


@pytest.fixture(scope="module")
def training(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("training")
    env = {"TORCHADA_SIM_DEVICES": "4"}
    return {
        kind: run_job(HERE / "training.py", 2, folder / kind, kind, env=env, timeout=280) for kind in ("musa", "cuda")
    }


CASES = [(kind, name) for kind in ("musa", "cuda") for name in names("training.py")]


@pytest.mark.parametrize(("kind", "name"), [*CASES, *(("cuda", name) for name in more("training.py"))])
def test_training(training: dict[str, Job], kind: str, name: str):
    job = training[kind]
    assert [report.get(name) for report in job.reports] == ["ok", "ok"], job.text()


SPAWNED = """
import sys
import torch
import torch.distributed as dist
import torch.multiprocessing as mp


def work(rank, size, store):
    dist.init_process_group("nccl", init_method=store, rank=rank, world_size=size, device_id=torch.device("cuda", rank))
    tensor = torch.full((2,), rank + 1.0).cuda(rank)
    dist.all_reduce(tensor)
    assert tensor.tolist() == [3.0, 3.0]
    dist.destroy_process_group()
    with open(sys.argv[1] + f".done{rank}", "w") as file:  # a pipe of two processes mixes what they print
        file.write(str(dist.is_initialized()))


if __name__ == "__main__":
    mp.spawn(work, (2, "file://" + sys.argv[1]), nprocs=2)
"""


def test_children_need_no_line_of_their_own(tmp_path: Path):
    (tmp_path / "program.py").write_text(SPAWNED)
    done = subprocess.run(
        [sys.executable, "-m", "torchada", "--simulate", "program.py", str(tmp_path / "store")],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(HERE.parents[1]), "GLOO_SOCKET_IFNAME": "lo"},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert [path.read_text() for path in tmp_path.glob("store.done*")] == ["False"] * 2, done.stdout + done.stderr
