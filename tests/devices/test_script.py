"""TorchScript: code that names CUDA devices."""

import io
import zipfile

import pytest
import torch

import torchada


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


def test_modules_and_files():
    net = torch.jit.script(Net())
    assert net(torch.ones(2)).tolist() == [2.0, 2.0]
    buffer = io.BytesIO()
    torch.jit.save(net, buffer)
    for place, index in ((None, 0), ("cuda:1", 1), (torch.device("cuda:1"), 1), ("cpu", -1)):
        buffer.seek(0)
        assert torch.jit.load(buffer, map_location=place).weight.get_device() == index


class Placed(torch.nn.Module):
    """As traces do, it names the device in its code, also in a function of its own."""

    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, x):
        return x.to("cuda") * self.weight + twos(x) + torch.zeros(2, device="cuda:0")


def twos(x):
    return torch.full([2], 2.0, device=torch.device("cuda"))


@pytest.fixture(params=["script", "trace"])
def cuda_archive(request, tmp_path):
    """What a CUDA machine writes: the same file with its device's name."""
    net = Placed().cuda()
    made = torch.jit.script(net) if request.param == "script" else torch.jit.trace(net, (torch.ones(2, device="cuda"),))
    own, path = tmp_path / "own.pt", tmp_path / "cuda.pt"
    torch._C.ScriptModule.save(made._c, str(own))
    with zipfile.ZipFile(own) as read, zipfile.ZipFile(path, "w") as write:
        for name in read.namelist():
            write.writestr(name, read.read(name).replace(b"musa", b"cuda"))
    assert b"musa" not in path.read_bytes()
    return path


def test_archives_written_on_cuda(cuda_archive, rule_off):
    for place in (None, "cuda", torch.device("cuda:0")):
        for file in (cuda_archive, io.BytesIO(cuda_archive.read_bytes())):
            net = torch.jit.load(file, map_location=place)
            assert net.weight.get_device() == 0
            assert net(torch.ones(2, device="cuda")).tolist() == [3.0, 3.0]
    assert torch.jit.load(cuda_archive, map_location="cpu").weight.device.type == "cpu"
    with rule_off("torch:_C.import_ir_module"):
        net = torch.jit.load(cuda_archive)
        with pytest.raises(RuntimeError, match=r"(?i)cuda"):
            net(torch.ones(2, device="cuda"))


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
