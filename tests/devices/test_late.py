"""torch, and devices, before torchada."""

from collections.abc import Callable
from typing import Any

LATE = """
import pickle
import torch
from torch import zeros, device, Tensor
from functools import partial
old, old1 = torch.device("cuda"), torch.device("cuda", 1)
make = partial(torch.ones, 2, device=old1)
assert old.type == "cuda"
to, cuda = Tensor.to, Tensor.cuda
import torchada
assert torchada.is_active()
x = torch.ones(2)
assert zeros is torch.zeros and device is torch.device and cuda is Tensor.cuda
assert device("cuda:1").type == "musa"
for made in (
    zeros(2, device=old1), torch.zeros(2, device=old1), make(), x.to(old1), x.to(device=old1), to(x, old1),
    cuda(x, old1),
    x.cuda(old1), x.new_zeros(2, device=old1), torch.tensor([1], device=old1), torch.empty_like(x, device=old1),
    x.new_tensor([1], device=old1), torch.nn.Linear(2, 2, device=old1).weight, torch.nn.Linear(2, 2).to(old1).weight,
    torch.nn.Linear(2, 2).cuda(old1).weight, torch.fft.fftfreq(4, device=old1), torch.UntypedStorage(4, device=old1),
    torch.device(old1) and torch.zeros(2, device=torch.device(old1)), torch.nested.nested_tensor([x], device=old1),
    torch.nn.Linear(2, 2).to_empty(device=old1).weight, torch.TypedStorage(2, dtype=torch.float32, device=old1),
):
    assert (made.device.type, made.device.index) == ("musa", 1), made
assert torch.device(old).type == "musa"
assert x.to(old).device == torch.device("cuda:0")
assert x.pin_memory(old).is_pinned(old)
assert torch.Generator(old1).device.type == torch.Stream(old1).device.type == torch.Event(old1).device.type == "musa"
with old1:
    assert torch.zeros(2).device == torch.device("cuda:1"), torch.zeros(2).device
torch.set_default_device(old1)
assert torch.zeros(2).device == torch.device("cuda:1")
torch.set_default_device(None)
torch.accelerator.set_device_index(old1)
assert torch.accelerator.current_device_index() == 1
torch.accelerator.set_device_index(0)
assert torch.get_device_module(old) is torch.musa
class Sub(torch.Tensor):
    __torch_dispatch__ = classmethod(lambda *args: None)
meta = torch.empty(2, device="meta")
made = torch.Tensor._make_subclass(Sub, meta, dispatch_device=True, device_for_backend_keys=old1)
assert torch._C._dispatch_keys(made).has(torch._C.DispatchKey.PrivateUse1), torch._C._dispatch_keys(made)
y = torch.arange(4, dtype=torch.uint8, device="cuda:1")
view = torch._C._construct_storage_from_data_pointer(y.data_ptr(), old1, 4)
assert view.device == torch.device("cuda:1") and view.data_ptr() == y.data_ptr()
import io
file = io.BytesIO(); torch.save(x, file); file.seek(0)
assert torch.load(file, map_location=old1).device == torch.device("cuda:1")
print("ok")
"""


def test_devices_and_names_from_before(run_python: Callable[..., Any]) -> None:
    assert run_python(LATE).stdout.strip() == "ok"


UNDO = """
import torch, pickle
from torch import nn
kept = {name: getattr(torch, name) for name in ("zeros", "device", "ones_like", "Generator", "autocast")}
hashes = {name: hash(value) for name, value in kept.items()}
slots = [vars(torch._C.TensorBase)[name] for name in ("to", "cuda", "is_cuda", "new_zeros", "type")]
codes = {f: f.__code__ for f in (torch.amp.autocast.__init__, torch.amp.GradScaler.__init__, torch.random.fork_rng)}
before = repr(torch.serialization._package_registry)
import torchada
assert torch.zeros(1, device="cuda").is_cuda
x = torch.ones(1, device="cuda")
torchada.deactivate()
assert all(getattr(torch, name) is value and hash(value) == hashes[name] for name, value in kept.items())
assert all(vars(torch._C.TensorBase)[d.__name__] is d for d in slots)
assert all(f.__code__ is code for f, code in codes.items() if f is not torch.random.fork_rng)
assert torch.device("cuda:1").type == "cuda"
assert x.is_cuda is False and x.type() == "torch.musa.FloatTensor"
raised = 0
for call in (
    lambda: torch.zeros(1, device="cuda"), lambda: torch.ones(1).to("cuda"), lambda: torch.ones(1).cuda(),
    lambda: torch.ones(1).new_zeros(1, device="cuda"), lambda: nn.Linear(1, 1).cuda(),
    lambda: nn.Linear(1, 1).to("cuda"), lambda: torch.cuda.FloatTensor(1),
    lambda: torch.ones(1).type("torch.cuda.FloatTensor"), lambda: torch.Stream("cuda"),
    lambda: torch.Generator("cuda"), lambda: torch.UntypedStorage(1, device="cuda"),
    lambda: torch.tensor([1], device="cuda"), lambda: torch.ops.aten.zeros.default([2], device=torch.device("cuda")),
):
    try:
        call()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError):
        raised += 1
assert raised == 13, raised
assert b"musa" in pickle.dumps(torch.device("musa"))
assert not isinstance(x, torch.cuda.FloatTensor)
assert torch.zeros(1, device="musa").device.type == "musa"
torchada.activate()
assert torch.zeros(1, device="cuda").is_cuda and torch.device("cuda").type == "musa"
print("ok")
"""


def test_undo(run_python: Callable[..., Any]) -> None:
    assert run_python(UNDO).stdout.strip() == "ok"
