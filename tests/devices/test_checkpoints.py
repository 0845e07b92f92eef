"""Checkpoints: files written on a CUDA machine load here; files written here load on CUDA and CPU machines."""

import copy
import io
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch

CUDA0, CUDA1, CPU = torch.device("cuda:0"), torch.device("cuda:1"), torch.device("cpu")

# What a CUDA machine writes: torch asks location_tag() where the storage was. No torchada, no torch_musa.
WRITE = """
import sys, torch
where = {}
torch.serialization.location_tag = lambda storage: where.get(storage._cdata, "cpu")
first, second, host = torch.arange(4.0), torch.ones(3), torch.zeros(2)
for tensor, tag in ((first, "cuda:0"), (second, "cuda:1"), (host, "cpu")):
    where[tensor.untyped_storage()._cdata] = tag
state = {"first": first, "view": first[1:3], "second": second, "host": host, "n": 3}
for zipped in (True, False):
    torch.save(state, f"{sys.argv[1]}/{'zip' if zipped else 'legacy'}.pt", _use_new_zipfile_serialization=zipped)
"""


def _plain(code: str, *args: str) -> str:
    """Run *code* on a machine with neither torchada nor torch_musa."""
    environ = {key: value for key, value in os.environ.items() if not key.startswith(("TORCHADA", "PYTHONPATH"))}
    done = subprocess.run(
        [sys.executable, "-c", code, *args],
        env=environ | {"TORCHADA": "0"},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cuda_files(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("cuda")
    _plain(WRITE, str(folder))
    assert b"cuda:0" in (folder / "legacy.pt").read_bytes()
    return folder


MAPS: list[tuple[Any, tuple[torch.device, torch.device]]] = [
    (None, (CUDA0, CUDA1)),
    ("cpu", (CPU, CPU)),
    ("cuda", (CUDA0, CUDA0)),
    ("cuda:1", (CUDA1, CUDA1)),
    (CUDA1, (CUDA1, CUDA1)),
    (torch.device("cuda"), (CUDA0, CUDA0)),
    ({"cuda:0": "cuda:1"}, (CUDA1, CUDA1)),
    ({"cuda:1": "cuda:0", "cuda:0": "cpu"}, (CPU, CUDA0)),
    (lambda storage, location: storage.cuda(1) if location.startswith("cuda") else storage, (CUDA1, CUDA1)),
    (lambda storage, location: storage, (CPU, CPU)),
    (lambda storage, location: None, (CUDA0, CUDA1)),
]


@pytest.mark.parametrize("kind", ["zip", "legacy"])
@pytest.mark.parametrize("weights_only", [True, False])
@pytest.mark.parametrize(("target", "expected"), MAPS, ids=[str(index) for index in range(len(MAPS))])
def test_load(cuda_files: Path, kind: str, weights_only: bool, target: Any, expected: Any) -> None:
    state = torch.load(cuda_files / f"{kind}.pt", map_location=target, weights_only=weights_only)
    assert (state["first"].device, state["second"].device) == expected
    assert state["first"].tolist() == [0.0, 1.0, 2.0, 3.0] and state["second"].tolist() == [1.0] * 3
    assert state["n"] == 3
    state["first"][1] = 9
    assert state["view"].tolist() == [9.0, 2.0]  # shared memory stays shared
    if not isinstance(target, (str, torch.device)):
        assert state["host"].device == CPU


@pytest.mark.parametrize("target", [None, "cuda:1", "cpu", {"cuda:0": "cuda:1"}])
def test_load_with_mmap(cuda_files: Path, target: Any) -> None:
    mapped = torch.load(cuda_files / "zip.pt", map_location=target, mmap=True)
    plain = torch.load(cuda_files / "zip.pt", map_location=target)
    assert all(mapped[key].device == plain[key].device for key in ("first", "second", "host"))
    assert torch.equal(mapped["first"].cpu(), plain["first"].cpu())


def test_unknown_device_in_a_file(cuda_files: Path, tmp_path: Path) -> None:
    with pytest.raises(RuntimeError, match=r"CUDA device 5 but torch.cuda.device_count\(\) is 2.*map_location"):
        torch.load(cuda_files / "zip.pt", map_location={"cuda:0": "cuda:5"})
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.load(cuda_files / "zip.pt", map_location="cuda:x")
    with pytest.raises(RuntimeError, match="Invalid device string"):
        torch.load(cuda_files / "zip.pt", map_location="cuda0")


def _state() -> dict[str, Any]:
    first = torch.arange(4.0, device="cuda:0")
    return {
        "first": first,
        "view": first[1:3],
        "second": torch.nn.Parameter(torch.ones(3, device="cuda:1")),
        "device": torch.device("cuda:1"),
        "half": torch.ones(2, device="cuda", dtype=torch.bfloat16),
        "sparse": torch.eye(2).to_sparse().cuda(),
    }


READ = """
import sys, torch
torch.serialization.register_package(0, lambda s: None, lambda s, l: (print(l), s)[1] if l.startswith("cuda") else None)
state = torch.load(sys.argv[1], weights_only=False)
print(sorted(state), state["device"], state["first"].tolist(), state["sparse"].to_dense().tolist())
state = torch.load(sys.argv[1], map_location="cpu")
print(state["first"].device, state["second"].device, type(state["second"]).__name__)
"""


@pytest.mark.parametrize("zipped", [True, False])
def test_saved_here_loads_on_cuda_and_cpu_machines(tmp_path: Path, zipped: bool) -> None:
    path = tmp_path / "state.pt"
    torch.save(_state(), path, _use_new_zipfile_serialization=zipped)
    assert b"musa" not in path.read_bytes()
    out = _plain(READ, str(path)).splitlines()
    assert out.count("cuda:1") == 1 and out.count("cuda:0") >= 3
    assert "cuda:1 [0.0, 1.0, 2.0, 3.0] [[1.0, 0.0], [0.0, 1.0]]" in out[-2]
    assert out[-1] == "cpu cpu Parameter"


@pytest.mark.parametrize("zipped", [True, False])
@pytest.mark.parametrize("weights_only", [True, False])
def test_round_trip(zipped: bool, weights_only: bool) -> None:
    file = io.BytesIO()
    torch.save(_state(), file, _use_new_zipfile_serialization=zipped)
    file.seek(0)
    state = torch.load(file, weights_only=weights_only)
    assert state["first"].device == CUDA0 and state["second"].device == CUDA1 and state["device"] == CUDA1
    state["first"][1] = 9
    assert state["view"].tolist() == [9.0, 2.0]
    assert state["half"].dtype == torch.bfloat16 and state["sparse"].is_cuda


def test_module_and_optimizer_state(tmp_path: Path) -> None:
    module = torch.nn.Linear(2, 2).cuda()
    optimizer = torch.optim.Adam(module.parameters())
    module(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    torch.save({"module": module.state_dict(), "optimizer": optimizer.state_dict()}, tmp_path / "c.pt")
    state = torch.load(tmp_path / "c.pt", map_location="cuda:1")
    other = torch.nn.Linear(2, 2).cuda(1)
    other.load_state_dict(state["module"])
    assert torch.equal(other.weight.cpu(), module.weight.cpu())
    again = torch.optim.Adam(other.parameters())
    again.load_state_dict(state["optimizer"])
    assert all(s["exp_avg"].device == CUDA1 for s in again.state.values())
    whole = io.BytesIO()
    torch.save(module, whole)
    whole.seek(0)
    assert torch.load(whole, weights_only=False).weight.is_cuda


class Placed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + torch.ones(2, device="cuda:0")


def test_objects_that_name_the_device(tmp_path: Path) -> None:
    """Not only tensors: what is written has CUDA's name in it and is read back as the device."""
    scaler = pickle.loads(pickle.dumps(torch.amp.GradScaler("cuda", init_scale=4.0)))
    assert scaler.scale(torch.ones(1, device="cuda")).item() == 4.0
    x = torch.ones(2, device="cuda")
    graph = torch.fx.symbolic_trace(lambda x: x + torch.ones(2, device=torch.device("cuda:0")))
    program = torch.export.export(Placed(), (x,))
    torch.export.save(program, tmp_path / "program.pt2")
    with zipfile.ZipFile(tmp_path / "program.pt2") as file:
        written = b"".join(map(file.read, file.namelist()))
    for data in (written, pickle.dumps(scaler), pickle.dumps(graph)):
        assert b"musa" not in data
    for read in (torch.export.load(tmp_path / "program.pt2").module(), pickle.loads(pickle.dumps(graph))):
        assert read(x).tolist() == [2.0, 2.0]


class Mixed(torch.nn.Linear):
    """A model that keeps its context, as trainers' plugins do."""

    def __init__(self, context: torch.autocast) -> None:
        super().__init__(2, 2, device="cuda")
        self.context = context

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with self.context:
            return super().forward(x)


@pytest.mark.filterwarnings("ignore:.*torch.cuda.amp.autocast:FutureWarning")
def test_autocast_contexts_are_copied_and_pickled() -> None:
    x = torch.ones(2, device="cuda")
    for context in (torch.autocast("cuda", torch.bfloat16), torch.cuda.amp.autocast(dtype=torch.bfloat16)):
        model = Mixed(context)
        written = pickle.dumps(model)
        assert b"musa" not in written
        for made in (copy.deepcopy(model), pickle.loads(written), copy.copy(model)):
            assert vars(made.context) == vars(context) and type(made.context) is type(context)
        assert copy.deepcopy(model)(x).dtype == pickle.loads(written)(x).dtype == torch.bfloat16
    cpu = torch.autocast("cpu", enabled=False)
    assert vars(pickle.loads(pickle.dumps(cpu))) == vars(copy.deepcopy(cpu)) == vars(cpu)


def test_pickle_and_deepcopy_use_the_same_locations() -> None:
    x = torch.ones(2, device="cuda:1")
    assert b"cuda:1" in pickle.dumps(x) and b"musa" not in pickle.dumps(x)
    assert pickle.loads(pickle.dumps(x)).device == copy.deepcopy(x).device == CUDA1


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr, torch.sparse_csc])
def test_sparse_layouts(layout: torch.layout) -> None:
    dense = torch.tensor([[1.0, 0.0], [2.0, 3.0]], device="cuda:1")
    sparse = dense.cpu().to_sparse(layout=layout).cuda(1)
    written = pickle.dumps(sparse)
    assert b"musa" not in written
    made = pickle.loads(written)
    assert made.layout == layout and made.device == CUDA1
    assert torch.equal(made.cpu().to_dense(), dense.cpu())


@pytest.mark.parametrize("kind", ["coo", "csr", "csc", "bsr", "bsc", "compressed"])
def test_parts_of_sparse_tensors_are_checked(kind: str) -> None:
    values = torch.ones((2, 1, 1) if kind.startswith("b") else 2, device="cuda")
    first, second = torch.tensor([0, 1, 2], device="cuda"), torch.tensor([0, 1], device="cuda")
    indices = (torch.stack([second, second]),) if kind == "coo" else (first, second)
    more: tuple[Any, ...] = {"coo": (True,), "compressed": (torch.sparse_csr,)}.get(kind, ())
    check = getattr(torch, f"_validate_sparse_{kind}_tensor_args")
    check(*indices, values, (2, 2), *more)
    with pytest.raises(RuntimeError, match=r"size|must be equal to the number"):
        check(*indices, values, (1, 1), *more)
    if kind != "coo":
        with pytest.raises(RuntimeError, match="device"):
            check(*indices, values.cpu(), (2, 2), *more)


def test_helpers() -> None:
    storage = torch.ones(2, device="cuda:1").untyped_storage()
    assert torch.serialization.location_tag(storage) == "cuda:1"
    assert torch.serialization.default_restore_location(torch.ones(2).untyped_storage(), "cuda:1").device == CUDA1
    assert torch.serialization.validate_cuda_device("cuda:1") == 1
    with pytest.raises(RuntimeError, match="CUDA device 7"):
        torch.serialization.validate_cuda_device("cuda:7")
    assert torch.serialization.default_restore_location(torch.ones(2).untyped_storage(), "cpu").device == CPU


def test_a_users_own_package_still_wins(cuda_files: Path) -> None:
    registry = torch.serialization._package_registry
    before = list(registry)
    first = min(entry[0] for entry in registry) - 1
    try:
        torch.serialization.register_package(first, lambda s: None, lambda s, location: s)
        assert torch.load(cuda_files / "zip.pt")["first"].device == CPU
    finally:
        registry[:] = before


def test_needs_its_rule(rule_off: Any, cuda_files: Path) -> None:
    with rule_off("torch.serialization:register_package"):
        with pytest.raises(Exception):
            torch.load(cuda_files / "zip.pt")
        assert b"musa:1" in pickle.dumps(torch.ones(2, device="cuda:1"))
    assert torch.load(cuda_files / "zip.pt")["first"].device == CUDA0
