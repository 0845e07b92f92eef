"""The whole test process runs as a user's would: simulated devices, torchada before torch."""

import fcntl
import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest

os.environ["TORCHADA_SIMULATE"] = "1"
os.environ["TORCHADA_SIM_DEVICES"] = "2"
os.environ.setdefault("OMP_NUM_THREADS", "1")
for _name in ("TORCHADA", "TORCHADA_PLATFORM", "TORCHADA_STRICT", "TORCHADA_FORCE_CUDA_AVAILABLE"):
    os.environ.pop(_name, None)

import torchada  # isort: skip
import torch  # isort: skip

assert torchada.is_active(), torchada.status()
assert torch.device("cuda").type == "musa"

ROOT = Path(__file__).resolve().parent.parent


ONE_GROUP = ("programs",)  # areas whose files share something dear that one process makes


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """What `-n auto` means: each worker is a process with torch and a device in it, about 1 GB."""
    return min(8, len(os.sched_getaffinity(0)))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """For `--dist loadgroup`: the tests of a file stay together and in order, as do those of some areas."""
    if not config.pluginmanager.hasplugin("xdist"):
        return
    for item in items:
        place = item.path.relative_to(ROOT / "tests").parts
        if item.get_closest_marker("xdist_group") is None:
            item.add_marker(pytest.mark.xdist_group(place[0] if place[0] in ONE_GROUP else "/".join(place)))


def pytest_collection_finish() -> None:
    """Every capture of a graph and many tests collect garbage: not among the millions of objects of torch."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="session")
def made_once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, Callable[[Path], object]], Path]:
    """``made_once(name, make)``: a folder that one worker fills by ``make(folder)`` and all workers use."""
    base = tmp_path_factory.getbasetemp()
    shared = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base

    def folder_of(name: str, make: Callable[[Path], object]) -> Path:
        folder, done = shared / name, shared / f"{name}.done"
        with open(shared / f"{name}.lock", "a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not done.exists():
                folder.mkdir()
                make(folder)
                done.touch()
        return folder

    return folder_of


@pytest.fixture(scope="session", autouse=True)
def inductor_cache(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """Where this run keeps compiled code: never what another run left, and the compiler is tried once."""
    folder = made_once("inductor", lambda folder: None)
    os.environ["TORCHINDUCTOR_CACHE_DIR"] = str(folder)
    return folder


@pytest.fixture(scope="session")
def built(made_once: Callable[[str, Callable[[Path], object]], Path]) -> Path:
    """A folder with the sdist of this checkout and the wheel that was built from that sdist."""

    def make(folder: Path) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith(("TORCHADA", "PYTHON"))}
        build = [sys.executable, "-m", "build", "--no-isolation", "--outdir", str(folder), str(ROOT)]
        done = subprocess.run(build, env=environment, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr

    return made_once("dist", make)


@pytest.fixture(scope="session")
def wheel(built: Path) -> Path:
    (path,) = built.glob("*.whl")
    return path


@pytest.fixture
def run_python(tmp_path: Path) -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run code in a fresh interpreter: ``run_python("print(1)", env={"NAME": "value" or None}, ok=True)``.

    The child sees the simulated devices but does not import torchada by itself.
    """

    def run(
        code: str, *args: str, env: dict[str, str | None] | None = None, ok: bool = True, options: tuple[str, ...] = ()
    ) -> subprocess.CompletedProcess[str]:
        environ = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        environ["PYTHONPATH"] = str(ROOT)
        for key, value in (env or {}).items():
            if value is None:
                environ.pop(key, None)
            else:
                environ[key] = value
        done = subprocess.run(
            [sys.executable, *options, "-c", textwrap.dedent(code), *args],
            env=environ,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=240,
        )
        if ok and done.returncode != 0:
            pytest.fail(f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    return run
