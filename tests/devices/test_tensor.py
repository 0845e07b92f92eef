"""Tensor methods and properties, legacy types, modules and optimizers."""

import copy
import pickle
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

CUDA0, CUDA1 = torch.device("cuda:0"), torch.device("cuda:1")


# ---------------------------------------------------------------- Tensor.cuda
@pytest.mark.parametrize("form", [(), (0,), ("cuda",), ("cuda:0",), (CUDA0,), (None,), (torch.device("cuda"),)])
def test_cuda_forms(form: tuple[Any, ...]) -> None:
    x = torch.arange(4.0)
    assert x.cuda(*form).device == CUDA0
    assert x.cuda(*form).tolist() == x.tolist()
    if form:
        assert x.cuda(device=form[0]).device == CUDA0
    assert x.cuda(*(form or (None,)), True).device == CUDA0
    assert x.cuda(*(form or (None,)), non_blocking=True).device == CUDA0


def test_cuda_other_device() -> None:
    x = torch.arange(4.0)
    for form in (1, "cuda:1", CUDA1):
        assert x.cuda(form).device == CUDA1
    with torch.cuda.device(1):
        assert x.cuda().device == CUDA1
        assert x.cuda("cuda").device == CUDA1
    assert x.cuda(1).cuda(0).device == CUDA0
    assert x.cuda(1).cuda().device == CUDA0  # the current device, as on CUDA


def test_cuda_returns_the_tensor_itself_when_it_is_there() -> None:
    x = torch.ones(2).cuda()
    assert x.cuda() is x and x.cuda(0) is x and x.to("cuda") is x and x.to(CUDA0) is x


def test_cuda_memory_format_and_autograd() -> None:
    x = torch.ones(1, 2, 3, 3)
    assert x.cuda(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)
    leaf = torch.ones(2, requires_grad=True)
    (leaf.cuda() * 3).sum().backward()
    assert leaf.grad is not None and leaf.grad.device.type == "cpu" and leaf.grad.tolist() == [3.0, 3.0]


def test_cuda_errors() -> None:
    x = torch.ones(2)
    with pytest.raises(RuntimeError, match="Invalid device, must be cuda device"):
        x.cuda("cpu")
    with pytest.raises(RuntimeError, match="Invalid device, must be cuda device"):
        x.cuda(torch.device("meta"))
    with pytest.raises(TypeError, match=r"must be torch\.device, not float"):
        x.cuda(1.5)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"must be torch\.device, not bool"):
        x.cuda(True)
    with pytest.raises(TypeError, match=r"must be torch\.device, not Tensor"):
        x.cuda(torch.tensor(1))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="keyword"):
        x.cuda(nonblocking=True)  # type: ignore[call-arg]
    with pytest.raises(RuntimeError, match="must not be negative"):
        x.cuda(-1)
    with pytest.raises(TypeError):
        torch.Tensor.cuda(3)  # type: ignore[arg-type]


# ---------------------------------------------------------------- Tensor.to
def test_to_overloads() -> None:
    x = torch.ones(2)
    other = torch.zeros(1, device="cuda:1", dtype=torch.float64)
    assert x.to("cuda:1").device == CUDA1
    assert x.to(1).device == CUDA1
    assert x.to(CUDA1, torch.float16).dtype == torch.float16
    assert x.to("cuda:1", torch.float16, True).device == CUDA1
    assert x.to("cuda:1", non_blocking=True, copy=True).device == CUDA1
    assert x.to(device="cuda:1", dtype=torch.int32).dtype == torch.int32
    assert x.to(other).device == CUDA1 and x.to(other).dtype == torch.float64
    assert x.to(torch.float64).device.type == "cpu"
    assert x.cuda().to(torch.float64).is_cuda
    assert x.to("cuda", memory_format=torch.preserve_format).is_cuda
    assert x.cuda().to("cpu").device.type == "cpu" and x.cuda().cpu().device.type == "cpu"
    assert x.to(None).device.type == "cpu"  # type: ignore[call-overload]


def test_dtype_named_cuda_is_no_device() -> None:
    with pytest.raises((RuntimeError, TypeError)):
        torch.ones(2).to("cudax")


# ---------------------------------------------------------------- properties
def test_is_cuda() -> None:
    class Sub(torch.Tensor):
        pass

    assert torch.ones(1).is_cuda is False
    assert torch.ones(1, device="meta").is_cuda is False
    assert torch.ones(1).cuda().is_cuda is True
    assert nn.Parameter(torch.ones(1).cuda()).is_cuda is True
    assert torch.ones(1).cuda().as_subclass(Sub).is_cuda is True
    assert torch.ones(1).as_subclass(Sub).is_cuda is False
    assert torch.Tensor.is_cuda.__get__(torch.ones(1).cuda()) is True
    assert torch.ones(1).cuda().to_sparse().is_cuda is True
    with pytest.raises(AttributeError):
        torch.ones(1).is_cuda = True  # type: ignore[misc]


def test_is_cuda_leaves_the_last_word_to_an_override() -> None:
    class Sub(torch.Tensor):
        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func == torch.Tensor.is_cuda.__get__:
                return "mine"
            return super().__torch_function__(func, types, args, kwargs or {})

    assert torch.ones(1).cuda().as_subclass(Sub).is_cuda == "mine"


def test_device_reads_as_musa_and_get_device() -> None:
    x = torch.ones(1, device="cuda:1")
    assert x.device.type == "musa" and str(x.device) == "musa:1"
    assert x.get_device() == torch.get_device(x) == 1
    assert torch.ones(1).get_device() == -1


def test_cuda_array_interface_is_absent() -> None:
    x = torch.ones(1).cuda()
    assert not hasattr(x, "__cuda_array_interface__") and not hasattr(x.cpu(), "__cuda_array_interface__")
    with pytest.raises(AttributeError, match="not available on MUSA"):
        _ = x.__cuda_array_interface__


def test_dlpack() -> None:
    class Own(torch.Tensor):
        pass

    x = torch.arange(4.0, device="cuda:1")
    for source in (x, x.as_subclass(Own), torch.utils.dlpack.to_dlpack(x)):
        y = torch.from_dlpack(source)
        assert y.device == x.device and y.data_ptr() == x.data_ptr() and type(y) is torch.Tensor
    assert x.__dlpack_device__() == (12, 1)  # kDLExtDev
    assert x.cpu().__dlpack_device__() == (1, 0)
    with pytest.raises((BufferError, RuntimeError, ValueError)):
        np.from_dlpack(x)


def test_pin_memory() -> None:
    x = torch.ones(4)
    for pinned in (x.pin_memory(), x.pin_memory("cuda"), x.pin_memory(device="cuda"), x.pin_memory(CUDA0)):
        assert pinned.is_pinned() and pinned.device.type == "cpu"
    assert x.pin_memory().is_pinned("cuda") and x.pin_memory().is_pinned(device="cuda")
    assert not x.is_pinned("cuda")
    assert torch.ones(2, pin_memory=True).is_pinned()
    assert x.pin_memory().cuda(non_blocking=True).is_cuda


# ---------------------------------------------------------------- legacy types
def test_type_strings() -> None:
    x = torch.ones(2)
    assert x.cuda().type() == "torch.cuda.FloatTensor" and x.type() == "torch.FloatTensor"
    assert x.cuda().half().type() == "torch.cuda.HalfTensor"
    moved = x.type("torch.cuda.DoubleTensor")
    assert moved.device == CUDA0 and moved.dtype == torch.float64
    assert x.type(torch.cuda.IntTensor).dtype == torch.int32 and x.type(torch.cuda.IntTensor).is_cuda
    assert x.type(dtype="torch.cuda.HalfTensor", non_blocking=True).is_cuda
    assert x.cuda(1).type("torch.cuda.HalfTensor").device == CUDA1
    assert x.cuda().type("torch.FloatTensor").device.type == "cpu"
    assert x.cuda().type(torch.float64).is_cuda
    assert x.cuda(1).type(x.cuda().type()).device == CUDA1
    with pytest.raises(ValueError, match="invalid type"):
        x.type("torch.cuda.NoSuchTensor")


def test_legacy_constructors() -> None:
    assert torch.cuda.FloatTensor(2, 3).shape == (2, 3) and torch.cuda.FloatTensor(2, 3).is_cuda
    assert torch.cuda.FloatTensor().shape == (0,)
    made = torch.cuda.FloatTensor([1, 2])
    assert made.tolist() == [1.0, 2.0] and made.dtype == torch.float32 and made.device == CUDA0
    assert torch.cuda.LongTensor([[1], [2]]).dtype == torch.int64
    assert torch.cuda.BoolTensor([True]).tolist() == [True]
    assert torch.cuda.HalfTensor(torch.Size([2])).shape == (2,)
    assert torch.cuda.FloatTensor(2, device="cuda:1").device == CUDA1
    with torch.cuda.device(1):
        assert torch.cuda.FloatTensor([1]).device == CUDA1
    same = torch.cuda.FloatTensor(made)
    same[0] = 5
    assert made[0] == 5
    with pytest.raises(TypeError, match=r"expected torch\.cuda\.FloatTensor"):
        torch.cuda.FloatTensor(torch.ones(2))
    with pytest.raises(RuntimeError, match="expects device type: cuda"):
        torch.cuda.FloatTensor(2, device="cpu")
    sparse = torch.cuda.sparse.FloatTensor(torch.tensor([[0, 1]]).cuda(), torch.ones(2).cuda(), torch.Size([3]))
    assert sparse.is_sparse and sparse.is_cuda and sparse.to_dense().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize(
    "args",
    [
        (),
        (2, 3),
        ([2, 3],),
        ((2, 3),),
        (torch.Size([2, 3]),),
        (np.int64(2), 3),
        (2, torch.tensor(3)),
        (np.array(3),),
        (np.ones(3),),
        (np.array([1, 2]),),
        (np.ones((2, 2), dtype=np.float32),),
        ([torch.tensor(1.0), torch.tensor(2.0)],),
        ([[1, 2], [3, 4]],),
        (range(3),),
        (3.5,),
        ("ab",),
        (None,),
        (2, 3.0),
        ([1, [2, 3]],),
    ],
    ids=repr,
)
@pytest.mark.parametrize("name", ["FloatTensor", "LongTensor"])
def test_legacy_constructors_take_what_the_cpu_classes_take(name: str, args: tuple[Any, ...]) -> None:
    def make(kind: Any) -> Any:
        try:
            made = kind(*args)
        except (TypeError, ValueError) as error:
            return type(error)
        sizes = all(isinstance(arg, (int, np.integer, torch.Size, torch.Tensor)) or np.ndim(arg) == 0 for arg in args)
        return made.shape, made.dtype, None if sizes else made.tolist()

    assert make(getattr(torch.cuda, name)) == make(getattr(torch, name))


def test_legacy_isinstance() -> None:
    x = torch.ones(2)
    assert isinstance(x.cuda(), torch.cuda.FloatTensor) and not isinstance(x, torch.cuda.FloatTensor)
    assert isinstance(x, torch.FloatTensor) and not isinstance(x.cuda(), torch.FloatTensor)
    assert not isinstance(x.cuda().double(), torch.cuda.FloatTensor)
    assert not isinstance(3, torch.cuda.FloatTensor)
    assert torch.is_tensor(x.cuda())


def test_legacy_new() -> None:
    x = torch.ones(2).cuda(1)
    assert x.new(3).device == CUDA1 and x.new([1.0, 2.0]).tolist() == [1.0, 2.0]
    assert x.new_tensor([1.0]).device == CUDA1
    assert x.new_zeros(2).device == CUDA1 and x.new_zeros(2, device="cpu").device.type == "cpu"


def test_default_tensor_type() -> None:
    try:
        torch.set_default_tensor_type("torch.cuda.DoubleTensor")
        assert torch.zeros(1).is_cuda and torch.zeros(1).dtype == torch.float64
        torch.set_default_tensor_type(torch.cuda.FloatTensor)
        assert torch.tensor([1.0]).is_cuda and torch.tensor([1.0]).dtype == torch.float32
        # The legacy constructor follows, subclasses included; the CPU classes stay what they are.
        for made in (torch.Tensor(2, 3), torch.Tensor([1.0]), torch.Tensor(), type("Sub", (torch.Tensor,), {})(2)):
            assert made.is_cuda and made.dtype == torch.float32
        assert torch.Tensor(2, 3).shape == (2, 3) and torch.FloatTensor(2).device.type == "cpu"
        with pytest.raises(RuntimeError, match="expects device type: cuda"):
            torch.Tensor(2, device="cpu")
    finally:
        torch.set_default_tensor_type("torch.FloatTensor")
    assert torch.zeros(1).device.type == "cpu" and torch.zeros(1).dtype == torch.float32
    assert torch.Tensor(2).device.type == "cpu"


def test_default_tensor_type_is_given_back(run_python: Any) -> None:
    done = run_python(
        """
        import torchada, torch
        torch.set_default_tensor_type("torch.cuda.FloatTensor")
        torchada.deactivate()
        print(torch.Tensor(2).device, torch.zeros(1).device)
        """
    )
    assert done.stdout.split() == ["cpu", "cpu"]


# ---------------------------------------------------------------- data, copies, pickles
def test_data_assignment() -> None:
    """The vendor's torch allows it for its device; torchada adds nothing."""
    x = torch.ones(3)
    keep = x
    x.data = x.data.cuda()
    assert keep.is_cuda and keep.tolist() == [1.0, 1.0, 1.0]
    parameter = nn.Parameter(torch.ones(2))
    parameter.data = parameter.data.cuda(1)
    assert parameter.device == CUDA1 and parameter.requires_grad and parameter.is_leaf
    parameter.data = parameter.data.cpu()
    assert parameter.device.type == "cpu"


def test_copies() -> None:
    x = torch.arange(3.0, device="cuda:1", requires_grad=True)
    for made in (copy.copy(x), copy.deepcopy(x), pickle.loads(pickle.dumps(x))):
        assert made.device == CUDA1 and made.tolist() == [0.0, 1.0, 2.0] and made.requires_grad
    parameter = nn.Parameter(torch.ones(2, device="cuda"))
    made = pickle.loads(pickle.dumps(parameter))
    assert type(made) is nn.Parameter and made.is_cuda
    assert type(copy.deepcopy(parameter)) is nn.Parameter and copy.deepcopy(parameter).is_cuda


# ---------------------------------------------------------------- modules
class Net(nn.Module):
    def __init__(self, **factory: Any) -> None:
        super().__init__()
        self.linear = nn.Linear(3, 4, **factory)
        self.norm = nn.BatchNorm1d(4, **factory)
        self.register_buffer("mask", torch.ones(4, dtype=torch.int64, device=factory.get("device")))
        self.items_ = nn.ParameterList([nn.Parameter(torch.ones(2, device=factory.get("device")))])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.norm(self.linear(x))


def _devices(module: nn.Module) -> set[torch.device]:
    return {tensor.device for tensor in (*module.parameters(), *module.buffers())}


@pytest.mark.parametrize(
    "move",
    [
        lambda m: m.cuda(),
        lambda m: m.cuda(0),
        lambda m: m.cuda("cuda:0"),
        lambda m: m.cuda(device=CUDA0),
        lambda m: m.to("cuda"),
        lambda m: m.to(device="cuda"),
        lambda m: m.to(CUDA0),
        lambda m: m.to(0),
        lambda m: m.to("cuda", torch.float32, non_blocking=True),
        lambda m: m.to(torch.ones(1).cuda()),
        lambda m: m.to_empty(device="cuda"),
    ],
)
def test_module_moves(move: Any) -> None:
    module = Net()
    assert move(module) is module
    assert _devices(module) == {CUDA0}
    assert module.mask.dtype == torch.int64
    assert module(torch.ones(2, 3, device="cuda")).is_cuda
    assert _devices(module.cpu()) == {torch.device("cpu")}


def test_module_keeps_its_parameters_when_it_moves() -> None:
    """An optimizer made before ``.cuda()`` goes on working on CUDA, so it does here."""
    module = Net()
    before = list(module.parameters())
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    module.cuda()
    assert all(new is old for new, old in zip(module.parameters(), before, strict=True))
    weight = module.linear.weight.detach().clone()
    module(torch.randn(4, 3, device="cuda")).square().sum().backward()
    optimizer.step()
    assert not torch.equal(module.linear.weight, weight)


def test_module_factory_arguments() -> None:
    assert _devices(Net(device="cuda:1")) == {CUDA1}
    assert nn.Embedding(3, 4, device="cuda").weight.is_cuda
    assert nn.LSTM(3, 4, device=1).weight_ih_l0.device == CUDA1
    lazy = nn.LazyLinear(2, device="cuda")
    assert lazy(torch.ones(1, 5, device="cuda")).is_cuda


def test_module_gradients_move() -> None:
    module = nn.Linear(2, 2)
    module(torch.ones(1, 2)).sum().backward()
    module.cuda()
    assert module.weight.grad is not None and module.weight.grad.is_cuda


def test_module_type_and_dtype() -> None:
    module = nn.Linear(2, 2).type("torch.cuda.HalfTensor")
    assert module.weight.dtype == torch.float16 and module.weight.is_cuda


@pytest.mark.parametrize("kind", [torch.optim.Adam, torch.optim.SGD, torch.optim.AdamW])
def test_optimizer_state_is_on_the_device(kind: Any) -> None:
    options = {"momentum": 0.9} if kind is torch.optim.SGD else {}
    module = nn.Linear(2, 2).cuda()
    optimizer = kind(module.parameters(), lr=0.1, **options)
    module(torch.ones(1, 2, device="cuda")).sum().backward()
    optimizer.step()
    moments = [value for state in optimizer.state.values() for key, value in state.items() if key != "step"]
    assert moments and all(value.is_cuda for value in moments if isinstance(value, torch.Tensor))
    other = kind(nn.Linear(2, 2).cuda(1).parameters(), lr=0.1, **options)
    other.load_state_dict(optimizer.state_dict())
    moved = [value for state in other.state.values() for key, value in state.items() if key != "step"]
    assert all(value.device == CUDA1 for value in moved if isinstance(value, torch.Tensor))


def test_packed_sequence() -> None:
    packed = nn.utils.rnn.pack_sequence([torch.ones(2, 3), torch.ones(1, 3)])
    assert not packed.is_cuda
    for moved in (packed.cuda(), packed.to("cuda"), packed.to(device="cuda"), packed.cuda(non_blocking=True)):
        assert moved.is_cuda and moved.data.device == CUDA0
    assert packed.cuda(1).data.device == CUDA1 and packed.cuda(device="cuda:1").data.device == CUDA1
    output, _ = nn.GRU(3, 2).cuda()(packed.cuda())
    assert output.is_cuda


def test_lazy_modules_move() -> None:
    lazy = torch.nn.LazyLinear(2)
    assert lazy.to("cuda:1").weight.device == torch.device("cuda:1")
    assert lazy.cuda(0).to(dtype=torch.float64).weight.device == torch.device("cuda:0")
    assert lazy(torch.ones(1, 3, device="cuda", dtype=torch.float64)).shape == (1, 2)
    assert lazy.to("cpu").weight.dtype == torch.float64
    with pytest.raises(ValueError, match="uninitialized parameter"):
        torch.nn.LazyLinear(2).weight.add(1)


def test_who_watches_is_cuda_sees_it() -> None:
    """A function mode and a subclass are asked for the property of the program before any other."""
    seen: list[Any] = []

    class Watching(torch.overrides.TorchFunctionMode):
        def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return function(*args, **(kwargs or {}))

    class Watched(torch.Tensor):
        @classmethod
        def __torch_function__(cls, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            seen.append(function)
            return super().__torch_function__(function, types, args, kwargs or {})

    x = torch.ones(1, device="cuda")
    with Watching():
        assert x.is_cuda
    assert x.as_subclass(Watched).is_cuda and x.is_cuda
    assert seen.count(torch.Tensor.is_cuda.__get__) == 2 and seen[0] == torch.Tensor.is_cuda.__get__  # type: ignore[attr-defined]
