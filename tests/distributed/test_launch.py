"""CUDA programs that start processes: launchers, restarts, start methods, shared tensors, data loaders.

No process but the first is told of torchada.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.distributed.launch import environment
from torchada.simulator import build

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)  # a module's jobs run in the set-up of its first test
TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SPAWN = "Cannot re-initialize CUDA in forked subprocess. To use CUDA with multiprocessing, you must use the 'spawn' "


@pytest.fixture(scope="module", autouse=True)
def built():
    build.ensure("_MCCL")  # before clocks run


def run(folder: Path, *command: str, ok: bool = True, **more: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, *command], env=environment(2) | more, cwd=folder, capture_output=True, text=True, timeout=200
    )
    assert not ok or done.returncode == 0, done.stdout + done.stderr
    return done


OUTER = """
import subprocess, sys
launch = [sys.argv[1], "--standalone", "--nproc-per-node", "gpu", "--max-restarts", "1", "--monitor-interval", "0.2"]
sys.exit(subprocess.run([*launch, *sys.argv[2:]]).returncode)
"""


def test_workers_are_restarted(tmp_path: Path):
    """A program starts torchrun, which starts a worker for each device, one of which dies: all are started again."""
    (tmp_path / "outer.py").write_text(OUTER)
    command = ["-m", "torchada", "--simulate", "outer.py", TORCHRUN, str(HERE / "worker.py"), str(tmp_path)]
    run(tmp_path, *command, TORCH_DISABLE_SHARE_RDZV_TCP_STORE="1")  # docs/distributed.md, elastic restarts
    reports = {path.name: json.loads(path.read_text()) for path in tmp_path.glob("[01].*")}
    assert reports == {"0.1": [[3.0, 3.0], "nccl", 0, 2], "1.1": [[3.0, 3.0], "nccl", 1, 2]}


def test_one_worker_for_each_device(run_python):
    code = """
        import torchada
        from torch.distributed import run
        def number(*arguments):
            return run.determine_local_world_size(run.get_args_parser().parse_args([*arguments, "x.py"]).nproc_per_node)
        print(run.determine_local_world_size("gpu"), number("--nproc-per-node", "gpu"))
        print(number(), number("--nproc-per-node=5"))
    """
    assert run_python(code, env={"PET_NPROC_PER_NODE": "gpu"}).stdout.split() == ["2", "2", "2", "5"]
    without = run_python(code, env={"TORCHADA_SIM_DEVICES": "0"}, ok=False)
    assert "ValueError: Cuda is not available" in without.stderr


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, object]:
    folder = tmp_path_factory.mktemp("processes")
    run(folder, "-m", "torchada", "--simulate", str(HERE / "processes.py"), str(folder))
    return json.loads((folder / "result").read_text())


def test_start_methods(processes):
    assert processes["device count"] == 2 and processes["fork before use"] == [3.0, 6.0]
    assert processes["initialised"] is False, "the parent has used nothing yet"
    messages, bad_fork, on_cpu = processes["fork after use"]
    assert [message.startswith(SPAWN) for message in messages] == [True] * len(messages), messages
    assert bad_fork is True and on_cpu == 2.0
    assert "Process 0 terminated with the following error" in processes["spawned error"]
    assert "ValueError: rank 0 of cuda:0" in processes["spawned error"]


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_shared_tensors(processes, method: str):
    seen, tensor, parameter, weight, theirs, device, code = processes[method]
    assert seen == [True, 1, "Parameter", True, 6.0, [7.0, 7.0]]
    assert tensor == [0.0, 40.0, 2.0, 3.0] and parameter == [2.0, 2.0] and weight == [[0.5, 0.5]]
    assert theirs == [0.0, 1.0, 2.0] and device == 1 and code == 0


@pytest.mark.parametrize("name", ["pinned", "spawned workers"])
def test_data_loaders(processes, name: str):
    assert processes[name] == [[True, True], [float(i * i) for i in range(8)], True]


def test_a_loader_whose_workers_use_the_device(processes):
    assert SPAWN in processes["worker after use"]
