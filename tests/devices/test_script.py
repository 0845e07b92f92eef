"""TorchScript: code that names CUDA devices."""

import io
import itertools
import os
import re
import subprocess
import sys
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
import torch

import torchada

# As that for MUSA is: a build for CUDA looks for NVIDIA's driver where C++ reads a CUDA device from a file.
of_a_build_without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for CUDA")

ROOT = Path(__file__).parents[2]


def moves(x):
    return x.to("cuda"), x.cuda(), x.cuda(1), x.to(device="cuda:1", dtype=torch.float64)


def asks(x):
    if x.is_cuda:
        return torch.ones(2, device="cuda")
    else:
        return torch.zeros(2)


def last(x):
    return x.to("cuda").is_cuda, x.is_cuda


def makes(x):
    device = torch.device("cuda:1")
    y = torch.arange(3, device=device)
    z = x.to(device, non_blocking=True)
    return y, z, torch.zeros_like(x, device="cuda")


class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2, device="cuda"))
        self.is_cuda = True

    def forward(self, x):
        if self.is_cuda:
            x = x.cuda(non_blocking=True)
        return x + self.weight


def test_moving():
    out = torch.jit.script(moves)(torch.ones(2))
    assert [tensor.get_device() for tensor in out] == [0, 0, 1, 1]
    assert out[3].dtype == torch.float64


def test_asking():
    function = torch.jit.script(asks)
    assert function(torch.zeros(1, device="cuda")).is_cuda
    assert not function(torch.zeros(1)).is_cuda
    assert torch.jit.script(last)(torch.ones(1)) == (True, False)  # the last words of the source


def test_making():
    out = torch.jit.script(makes)(torch.ones(2))
    assert [tensor.get_device() for tensor in out] == [1, 1, 0]


@of_a_build_without_cuda
def test_modules_and_files():
    net = torch.jit.script(Net())
    assert net(torch.ones(2)).tolist() == [2.0, 2.0]
    buffer = io.BytesIO()
    torch.jit.save(net, buffer)
    for place, index in ((None, 0), ("cuda:1", 1), (torch.device("cuda:1"), 1), ("cpu", -1)):
        buffer.seek(0)
        assert torch.jit.load(buffer, map_location=place).weight.get_device() == index


class Placed(torch.nn.Module):
    """It names the device in every way, also in a function and in code that runs beside its own."""

    devices: list[torch.device]

    def __init__(self, device: str):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))
        self.place, self.text, self.told = torch.device(device), device, "musa"
        self.devices = [torch.device(device), torch.device("meta")]

    def forward(self, x, where: str = "cuda"):
        on = x.is_cuda
        y = x.cuda() * self.weight + twos(x) + torch.zeros(2, device="cuda:0")
        y = y + x.to(self.place) + x.to(self.text) + x.to(where) + x.to(self.devices[0])
        return y, on, torch.jit.wait(torch.jit.fork(beside, x)), self.told


class Asking(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x.to("cuda:0") * self.weight if x.is_cuda else x


def twos(x):
    return torch.full([2], 2.0, device=torch.device("cuda"))


def beside(x):
    return x.cuda().is_cuda


def traced(x):
    return x.to("cuda") * torch.ones(2, device="cuda")


ONES = torch.ones(2)

# A machine with neither torchada nor torch_musa: a CPU build of torch, where CUDA itself cannot run.
MAKE = """
import sys, torch
from tests.devices.test_script import Placed
torch.jit.script(Placed("cuda")).save(sys.argv[1])
"""
READ = """
import sys, torch
for path in sys.argv[1:]:
    net = torch.jit.load(path, map_location="cpu")
    places = [net.place, net.devices[0], net.text, net.told] if hasattr(net, "told") else []
    print([str(place) for place in places], {value.device.type for value in net.parameters()})
    copy = path + ".again"
    net.save(copy)
    reader = torch._C.PyTorchFileReader(path)
    records = {name: reader.get_record(name) for name in reader.get_all_records()}
    print(records.pop("extra/note", ""))
    assert b"musa:" not in b"".join(records.values())
print(torch.jit.load(sys.argv[1], map_location="cpu").code)
"""


def _plain(code, *args):
    environ = {key: value for key, value in os.environ.items() if not key.startswith("TORCHADA")}
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code, *map(str, args)],
        env=environ | {"TORCHADA": "0", "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def cuda_archive(tmp_path_factory):
    """What a CUDA machine writes: torch's own file, with CUDA's place for the weight."""
    folder = tmp_path_factory.mktemp("cuda")
    own, path = folder / "own.pt", folder / "cuda.pt"
    _plain(MAKE, own)
    with zipfile.ZipFile(own) as read, zipfile.ZipFile(path, "w") as write:
        for name in read.namelist():
            data = read.read(name)
            assert not name.endswith("__torch__.py") or (b"torch.cuda(x)" in data and b"prim.is_cuda(x)" in data)
            place = b"X\x03\0\0\0cpuq", b"X\x06\0\0\0cuda:0q"
            write.writestr(name, data.replace(*place, 1) if name.endswith("/data.pkl") else data)
    return path


@of_a_build_without_cuda
def test_archives_written_on_cuda(cuda_archive, rule_off):
    for place in (None, "cuda", torch.device("cuda:0")):
        for file in (cuda_archive, io.BytesIO(cuda_archive.read_bytes())):
            net = torch.jit.load(file, map_location=place)
            assert net.weight.get_device() == 0
            assert net.devices == [torch.device("cuda"), torch.device("meta")] and net.place == torch.device("cuda")
            for x in (ONES, ONES.cuda()):
                out, on, beside, _ = net(x)
                assert out.tolist() == [7.0, 7.0] and out.is_cuda and beside
                assert on is x.is_cuda
    assert torch.jit.load(cuda_archive, map_location="cpu").weight.device.type == "cpu"
    with rule_off("torch:_C.import_ir_module"):
        net = torch.jit.load(cuda_archive)
        with pytest.raises(RuntimeError, match=r"(?i)cuda"):
            net(ONES.cuda())


def test_archives_are_portable(tmp_path, rule_off):
    """What is saved here names CUDA, as torch.save does it, and nothing of the user's is changed; read again it is
    what it was."""
    net, note = torch.jit.script(Placed("cuda").cuda()), {"note": 'torch.device("musa:0")'}
    path, function, trace, frozen = (tmp_path / name for name in ("net.pt", "function.pt", "trace.pt", "frozen.pt"))
    net.save(path, _extra_files=note)
    torch.jit.save(torch.jit.script(twos), str(function))
    torch.jit.trace(traced, (ONES,)).save(str(trace))
    torch.jit.freeze(torch.jit.script(Asking().cuda().eval())).save(frozen)
    assert sorted(file.name for file in tmp_path.iterdir()) == ["frozen.pt", "function.pt", "net.pt", "trace.pt"]
    buffer = io.BytesIO()
    torch.jit.save(net, buffer, _extra_files=note)
    (tmp_path / "buffer.pt").write_bytes(buffer.getvalue())
    (tmp_path / "method.pt").write_bytes(torch.jit.script(twos).save_to_buffer())
    files = sorted(tmp_path.iterdir())

    out = _plain(READ, path, *files).splitlines()
    assert out.count("['cuda', 'cuda', 'cuda', 'musa'] {'cpu'}") == 3
    assert out.count("b'torch.device(\"musa:0\")'") == 3
    code = "\n".join(out[2 * len(files) + 2 :])
    assert 'torch.device("cuda")' in code and "musa" not in code

    for file in (path, tmp_path / "net.pt.again", tmp_path / "buffer.pt"):
        net = torch.jit.load(file, map_location="cuda:0")
        for x in (ONES, ONES.cuda()):
            y, on, beside, told = net(x)
            assert y.tolist() == [7.0, 7.0] and y.is_cuda and (on, beside, told) == (x.is_cuda, True, "musa"), file
    for file in (frozen, tmp_path / "frozen.pt.again"):
        assert [torch.jit.load(file, map_location="cuda")(x).is_cuda for x in (ONES, ONES.cuda())] == [False, True]
    for file in (function, tmp_path / "method.pt", trace, tmp_path / "trace.pt.again"):
        assert torch.jit.load(file)(ONES).is_cuda

    with rule_off("torch:_C.ScriptModule.save"), rule_off("torch:_C.ScriptModule.save_to_buffer"):
        net.save(tmp_path / "own.pt")
        assert b"musa:" in net.save_to_buffer()
    with rule_off("torch:_C.ScriptFunction.save"), rule_off("torch:_C.ScriptFunction.save_to_buffer"):
        scripted = torch.jit.script(twos)
        scripted.save(str(tmp_path / "own_function.pt"))
        assert _code(scripted.save_to_buffer()).count("musa") == 1
    assert "musa" in _code((tmp_path / "own.pt").read_bytes())
    assert "musa" in _code((tmp_path / "own_function.pt").read_bytes())


def _code(archive):
    reader = torch._C.PyTorchFileReader(io.BytesIO(archive))
    return b"".join(reader.get_record(name) for name in reader.get_all_records() if name.endswith(".py")).decode()


def test_an_archive_of_the_host_is_left_alone(tmp_path):
    net = torch.jit.script(torch.nn.Linear(2, 2))
    net.save(tmp_path / "net.pt")
    with zipfile.ZipFile(tmp_path / "net.pt") as file:
        # Scripted before in this process, the class has another file: linear/___torch_mangle_1.py
        (code,) = [entry for entry in file.infolist() if re.search(r"/linear\b.*\.py$", entry.filename)]
        assert code.compress_type == zipfile.ZIP_DEFLATED


def test_pipes(tmp_path):
    """A file that cannot be read again is written once."""
    path = tmp_path / "pipe"
    os.mkfifo(path)
    with ThreadPoolExecutor() as pool:
        read = pool.submit(path.read_bytes)
        torch.jit.script(twos).save(str(path))
    assert "musa" not in _code(read.result())


class Kept:
    def __init__(self, device: str):
        self.device = device

    def move(self, x: torch.Tensor):
        return x.to(self.device), x.is_cuda


def uses_a_class(x):
    kept = Kept("cuda:1")
    moved, before = kept.move(x)
    return moved, before, kept.move(moved)[1]


class Hooked(torch.nn.Module):
    def forward(self, x: torch.Tensor, device: str = "cuda:1"):
        return x.to(device)


def to_cuda(self, given: tuple[torch.Tensor, str]) -> tuple[torch.Tensor, str]:
    where = "cuda:0"
    assert not given[0].is_cuda
    return given[0].to(where), given[1]


def run_time(x, device: str = "cuda", index: int = 1):
    moved = x.to(device)
    return moved, torch.zeros_like(moved, device=torch.device("cuda", 0)), x.to("cuda:" + str(index))


def test_texts_at_run_time(rule_off):
    function = torch.jit.script(run_time)
    assert [tensor.get_device() for tensor in function(ONES)] == [0, 0, 1]
    assert [tensor.get_device() for tensor in function(ONES, "cpu", 0)] == [-1, 0, 0]
    with pytest.raises(RuntimeError, match="nonsense"):
        function(ONES, "nonsense")

    moved, before, after = torch.jit.script(uses_a_class)(ONES)
    assert moved.get_device() == 1 and not before and after

    net = Hooked()
    net.register_forward_pre_hook(to_cuda)
    scripted = torch.jit.script(net)
    assert scripted(ONES, "cuda:1").get_device() == 1
    assert torch.jit.script(net)(ONES, "cuda:1").get_device() == 1  # of the same type

    for rule, make in (
        ("torch:_C._jit_script_compile", lambda: torch.jit.script(_fresh())(ONES)),
        ("torch:_C._jit_script_class_compile", lambda: torch.jit.script(_fresh_class())(ONES)),
        ("torch.jit._recursive:create_methods_and_properties_from_stubs", lambda: _fresh_module()(ONES, "cuda")),
        ("torch.jit._recursive:create_hooks_from_stubs", lambda: _fresh_module(to_cuda)(ONES, "cuda")),
    ):
        make()
        with rule_off(rule), pytest.raises(RuntimeError, match=r"(?i)cuda|nvidia"):
            make()


NUMBERS = itertools.count()


def _fresh_class():
    class Fresh:
        def __init__(self, device: str):
            self.device = device

        def move(self, x: torch.Tensor):
            return x.to(self.device)

    Fresh.__name__ += str(next(NUMBERS))  # TorchScript keeps classes by their names

    def function(x):
        return Fresh("cuda").move(x)

    return function


def _fresh_module(*hooks):
    class Fresh(torch.nn.Module):
        def forward(self, x: torch.Tensor, device: str):
            return x.to(device)

    net = Fresh()
    for hook in hooks:
        net.register_forward_pre_hook(hook)
    return torch.jit.script(net)


def test_text_is_not_a_device():
    @torch.jit.script
    def label(x: str):
        return "cuda" + x

    assert label(":0") == "cuda:0"


def test_tracing():
    traced = torch.jit.trace(lambda x: x.to("cuda") * torch.ones(2, device="cuda"), (torch.ones(2),))
    assert traced(torch.full((2,), 3.0)).tolist() == [3.0, 3.0]


def test_without_the_rules_torch_refuses():
    with torchada.disabled():
        with pytest.raises(RuntimeError):
            torch.jit.script(_fresh())(torch.ones(2))


def _fresh():
    def function(x):
        return x.to("cuda")

    return function
