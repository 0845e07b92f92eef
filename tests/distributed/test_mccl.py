"""The process group "mccl" of the simulated device: real processes, with MUSA names and no translation by torchada, and
the same with CUDA names.

Every job runs once and makes many checks; each is a test here.
"""

import re
import shutil
from pathlib import Path

import pytest

from tests.distributed.launch import Job, run_job
from torchada.simulator import build

HERE = Path(__file__).parent
pytestmark = pytest.mark.timeout(600)  # a module's jobs run in the set-up of its first test


def names(script: str, mark: str) -> list[str]:
    """The functions of a script that are decorated with `mark`; importing it would change this process."""
    return re.findall(rf"^@{mark}\ndef (\w+)", (HERE / script).read_text(), re.MULTILINE)


@pytest.fixture(scope="module", autouse=True)
def built():
    build.ensure("_MCCL")  # before clocks run


@pytest.fixture(scope="module")
def checks(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    folder = tmp_path_factory.mktemp("checks")
    return {kind: run_job(HERE / "mccl_checks.py", 2, folder / kind, env={"NAMES": kind}) for kind in ("musa", "cuda")}


@pytest.mark.parametrize("kind", ["musa", "cuda"])
@pytest.mark.parametrize("name", names("mccl_checks.py", "check"))
def test_two_ranks(checks: dict[str, Job], kind: str, name: str):
    job = checks[kind]
    assert [report.get(name) for report in job.reports] == ["ok", "ok"], job.text()
    assert job.codes == [0, 0], job.text()


def test_asynchronous_streams(tmp_path: Path):
    """A collective follows what was issued to the stream before it, and work issued after wait() follows it."""
    some = [
        "all_reduce_as_gloo",
        "layouts",
        "messages",
        "coalesced",
        "handles_and_futures",
        "several_devices_in_one_process",
    ]
    job = run_job(HERE / "mccl_checks.py", 2, tmp_path, *some, env={"TORCHADA_SIM_ASYNC": "1"})
    assert job.reports == [dict.fromkeys(some, "ok")] * 2, job.text()


def test_eight_ranks(tmp_path: Path):
    some = ["all_reduce_as_gloo", "all_gather_of_all_kinds", "all_to_all", "messages", "objects", "split_group"]
    job = run_job(HERE / "mccl_checks.py", 8, tmp_path, *some, env={"NAMES": "cuda"})
    assert job.codes == [0] * 8, job.text()
    assert job.reports == [dict.fromkeys(some, "ok")] * 8, job.text()


IN_CUDA = ("different_sizes", "one_device_for_two_ranks", "absent_rank", "dead_rank")
TROUBLES = [("musa", name) for name in names("mccl_failures.py", "scenario")] + [("cuda", name) for name in IN_CUDA]


@pytest.fixture(scope="module")
def failures(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Job]:
    script, folder = HERE / "mccl_failures.py", tmp_path_factory.mktemp("failures")
    return {
        "musa": run_job(script, 2, folder / "musa"),
        "cuda": run_job(script, 2, folder / "cuda", *IN_CUDA, env={"NAMES": "cuda"}),
    }


@pytest.mark.parametrize(("kind", "name"), TROUBLES)
def test_trouble(failures: dict[str, Job], kind: str, name: str):
    job = failures[kind]
    reports = job.reports[:1] if name == "dead_rank" else job.reports
    assert [report.get(name) for report in reports] == ["ok"] * len(reports), job.text()


@pytest.mark.parametrize("kind", ["musa", "cuda"])
def test_a_group_that_is_not_destroyed_lets_the_process_end(failures: dict[str, Job], kind: str):
    assert failures[kind].codes == [0, 0], failures[kind].text()
    assert "terminate" not in failures[kind].text()


def test_wrong_world_size_is_a_time_out(run_python):
    done = run_python(
        """
        import datetime, socket, torchada, torch, torch.distributed as dist
        with socket.create_server(("127.0.0.1", 0)) as server:  # an older torch wants a number
            place = f"tcp://127.0.0.1:{server.getsockname()[1]}"
        try:
            dist.init_process_group(
                "nccl", init_method=place, rank=0, world_size=2, timeout=datetime.timedelta(seconds=2)
            )
        except dist.DistError as error:
            print(type(error).__name__, error)
        """
    )
    assert "imed out" in done.stdout and "1/2" in done.stdout, done.stdout


def test_without_a_compiler_the_error_says_what_to_do(run_python, tmp_path):
    main = build.ensure()
    shutil.copytree(main.parent, tmp_path / "cache" / main.parent.name)
    done = run_python(
        """
        import torchada.simulator
        torchada.simulator.install()
        import torch, torch.distributed as dist, torch_musa
        assert dist.is_mccl_available() and dist.Backend.MCCL == "mccl"
        try:
            dist.init_process_group("mccl", store=dist.HashStore(), rank=0, world_size=1)
        except RuntimeError as error:
            print(type(error).__name__, error)
        """,
        env={"TORCHADA": "0", "TORCHADA_SIM_CACHE": str(tmp_path / "cache"), "CXX": "no-such-compiler"},
    )
    assert "SimulatorBuildError" in done.stdout and "no-such-compiler" in done.stdout
