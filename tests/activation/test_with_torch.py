"""Every way of switching on, with torch and the simulated device: the same answers, in children too."""

from __future__ import annotations

import sys
import zipfile
from pathlib import Path
from textwrap import dedent

import pytest

from tests.activation.support import Environment, Result

SIMULATE = {"TORCHADA_SIMULATE": "1", "TORCHADA_SIM_DEVICES": "2", "OMP_NUM_THREADS": "1"}

PROGRAM = """
    import torch
    x = torch.arange(6.0, device="cuda:1").reshape(2, 3)
    print(x.is_cuda, x.get_device(), torch.cuda.device_count(), torch.cuda.current_device(), (x @ x.T).sum().item())
    torch.cuda.manual_seed_all(3)
    print(torch.rand(2, device="cuda").cpu().tolist(), torch.cuda.get_device_name(0))
"""


def write(folder: Path, text: str) -> str:
    path = folder / "program.py"
    path.write_text(dedent(text).lstrip())
    return str(path)


def run(environment: Environment, *arguments: str, **options) -> Result:
    return environment.run(*arguments, **{"timeout": 280, "env": SIMULATE} | options)


@pytest.fixture(scope="module")
def expected(dormant: Environment, tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """What PROGRAM prints, asked of the simulated device by its own name."""
    text = PROGRAM.replace("import torch\n", "import torchada, torch, torch_musa\n").replace('"cuda', '"musa')
    text = text.replace("x.is_cuda", "x.is_musa").replace("torch.cuda.", "torch_musa.")
    path = write(tmp_path_factory.mktemp("expected"), text)
    lines = run(dormant, path).lines()
    assert lines[0] == "True 1 2 0 83.0" and "(simulated)" in lines[1]
    return lines


def test_start_file(active: Environment, tmp_path: Path, expected: list[str]) -> None:
    path = write(tmp_path, PROGRAM)
    assert run(active, path).lines() == expected
    assert run(active, "-I", path).lines() == expected


def test_import_first(dormant: Environment, tmp_path: Path, expected: list[str]) -> None:
    path = write(tmp_path, "import torchada\n" + dedent(PROGRAM))
    assert run(dormant, path).lines() == expected


def test_import_after_torch(dormant: Environment, tmp_path: Path, expected: list[str]) -> None:
    path = write(tmp_path, dedent(PROGRAM).replace("import torch\n", "import torch\nimport torchada\n"))
    assert run(dormant, path).lines() == expected


def test_command_line(dormant: Environment, active: Environment, tmp_path: Path, expected: list[str]) -> None:
    path = write(tmp_path, PROGRAM)
    threads = {"OMP_NUM_THREADS": "1"}
    assert run(active, "-m", "torchada", "--simulate", path, env=threads).lines() == expected
    simulated = ["-m", "torchada", "--devices", "2"]
    assert run(dormant, *simulated, "-m", "program", cwd=tmp_path, env=threads).lines() == expected
    assert run(dormant, *simulated, "-", input=Path(path).read_text(), env=threads).lines() == expected


def test_sitecustomize(tmp_path: Path, wheel: Path, expected: list[str]) -> None:
    """Where nothing can be installed: an unpacked wheel anywhere will do."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "unpacked")
    bare = Environment(tmp_path / "bare")
    entry = {"PYTHONPATH": str(tmp_path / "unpacked" / "torchada" / "_site")}
    assert run(bare, write(tmp_path, PROGRAM), env=SIMULATE | entry).lines() == expected


def test_switched_off(active: Environment, tmp_path: Path) -> None:
    code = "import torch, sys; print(type(torch.cuda.__loader__).__name__, 'torch_musa' in sys.modules)"
    result = run(active, "-c", code, env=SIMULATE | {"TORCHADA": "0"})
    assert result.lines() == ["SourceFileLoader False"]
    with pytest.raises(AssertionError, match="cuda"):
        run(active, write(tmp_path, PROGRAM), env=SIMULATE | {"TORCHADA": "0"}).lines()


LOADER = """
    import sys, torch
    from torch.utils.data import DataLoader, Dataset

    class Devices(Dataset):
        def __len__(self):
            return 4
        def __getitem__(self, index):
            return f"{torch.device('cuda', 1).type} {type(torch.cuda).__name__} {'torchada.engine' in sys.modules}"

    if __name__ == "__main__":
        for method in ("fork", "spawn"):
            loader = DataLoader(Devices(), num_workers=2, multiprocessing_context=method, batch_size=None)
            print(method, sorted(set(loader)))
"""


@pytest.mark.parametrize("way", ["start file", "command line", "import"])
def test_data_loader_workers(active: Environment, dormant: Environment, tmp_path: Path, way: str) -> None:
    path = write(tmp_path, "import torchada\n" + dedent(LOADER) if way == "import" else LOADER)
    if way == "start file":
        lines = run(active, path).lines()
    else:
        lines = run(dormant, *(["-m", "torchada"] if way == "command line" else []), path).lines()
    assert lines == ["fork ['musa module True']", "spawn ['musa module True']"]


def test_torchrun(active: Environment, dormant: Environment, tmp_path: Path) -> None:
    text = """
        import os, torch
        rank = int(os.environ["LOCAL_RANK"])
        torch.cuda.set_device(rank)
        device = torch.zeros(1, device="cuda").device
        with open(os.path.join(os.path.dirname(__file__), f"rank{rank}"), "w") as file:
            print(torch.cuda.current_device(), device.index, device.type, file=file)
    """
    path = write(tmp_path, text)
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
    for command in (
        (active, *launch, path),
        (dormant, "-m", "torchada", *launch, path),
        (dormant, *launch, "-m", "torchada", path),  # each worker started by torchada instead of the launcher
    ):
        run(*command).lines()
        assert [(tmp_path / f"rank{rank}").read_text() for rank in (0, 1)] == ["0 0 musa\n", "1 1 musa\n"]
        for rank in (0, 1):
            (tmp_path / f"rank{rank}").unlink()


@pytest.mark.parametrize("module", ["engine", "rules"])
def test_broken_torchada_does_not_break_torch(fresh: Environment, module: str) -> None:
    (fresh.site / "torchada" / f"{module}.py").write_text("raise KeyError('damaged')")
    result = run(fresh, "-c", "import torch; print(torch.ones(2).sum().item(), torch.cuda.is_available())")
    assert result.lines() == ["2.0 False"]
    (line,) = [line for line in result.stderr.splitlines() if "torchada" in line]
    assert line.startswith("torchada: not active: ") and "damaged" in line
    assert "Traceback" not in result.stderr


def test_broken_torch_musa_does_not_break_torch(active: Environment, tmp_path: Path) -> None:
    package = tmp_path / "broken" / "torch_musa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise OSError('libmusart.so.4: cannot open shared object file')")
    code = "import torch; print(torch.ones(2).sum().item(), torch.cuda.is_available(), torch.device('cuda').type)"
    result = run(active, "-W", "always", "-c", code, env={"PYTHONPATH": str(package.parent)})
    assert result.lines() == ["2.0 False cuda"]
    assert result.stderr.count("libmusart.so.4") == 1
    assert "Traceback" not in result.stderr


def test_no_torch_musa_is_inert(active: Environment) -> None:
    code = """
        import sys, torch
        print(any(type(finder).__module__.startswith("torchada") for finder in sys.meta_path))
        print(torch.cuda.__name__, type(torch.cuda.__loader__).__name__, torch.device("cuda").type)
    """
    result = run(active, "-c", dedent(code), env={})
    assert result.lines() == ["False", "torch.cuda SourceFileLoader cuda"]
    assert "torchada" not in result.stderr


def test_same_interpreter(active: Environment) -> None:
    """The environments above run the Python that runs the tests."""
    assert active.run("-c", "import sys; print(sys.version)").stdout.strip() == sys.version
