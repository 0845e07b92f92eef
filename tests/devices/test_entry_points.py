"""Every callable of the installed torch that takes a device has a row or a reviewed reason, and every row works."""

import fnmatch
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from . import decided

CPU = torch.zeros(2, device="cpu")
VALUES = ["cuda", "cuda:0", "cuda:1", torch.device("cuda"), torch.device("cuda", 1), torch.device("cuda:0"), 0, 1]
INDEX = {"cuda": 0, "cuda:0": 0, "cuda:1": 1, 0: 0, 1: 1}


def _index(value: Any) -> int:
    return value.index or 0 if isinstance(value, torch.device) else INDEX[value]


WALK = """
import json, sys
import torchada
import torch
from tests.devices import walk
from torchada.engine import ENGINE
from torchada.redirect import locate
from torchada.rules import Detour

rows = set()
for rule in ENGINE.table.rules:
    module = sys.modules.get(rule.module)
    if isinstance(rule.do, Detour) and module is not None and not rule.module.startswith("torch.cuda"):
        try:
            target = locate(module, rule.name)[2]
        except AttributeError:
            continue
        rows.add(id(getattr(target, "fget", None) or getattr(target, "__func__", target)))
stubs = [(name, walk.stub_object(name)) for name in walk.stubs()]
print(json.dumps({
    "stubs": [name for name, _ in stubs],
    "native": [name for name, value in stubs if value is not None and id(value) not in rows],
    "schemas": [name for name, value in walk.schema_objects() if id(value) not in rows],
    "constructors": [name for name, value in walk.constructors() if id(value) not in rows],
    "python": [name for name, function, _ in walk.python_functions() if id(function) not in rows],
}))
"""


@pytest.fixture(scope="module")
def without_row() -> dict[str, list[str]]:
    """What the walk finds in a fresh process: callables that take a device and have no row."""
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        [sys.executable, "-c", WALK], env={**os.environ, "PYTHONPATH": str(root)}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])  # type: ignore[no-any-return]


def _undecided(names: list[str], reasons: dict[str, str]) -> list[str]:
    return [name for name in names if not any(fnmatch.fnmatchcase(name, pattern) for pattern in reasons)]


def _stale(names: list[str], reasons: dict[str, str]) -> list[str]:
    """Patterns without a name in the newest torch; an older one lacks some."""
    newest = hasattr(torch.nn, "LinearCrossEntropyOptions")
    return [pattern for pattern in reasons if newest and not fnmatch.filter(names, pattern)]


def test_every_native_callable_with_a_device_is_decided(without_row: dict[str, list[str]]) -> None:
    assert _undecided(without_row["native"], decided.NATIVE) == []
    assert _stale(without_row["stubs"], decided.NATIVE) == []
    assert without_row["schemas"] == []
    # Python; hands the device to _nested.nested_tensor. Of the others an older torch thinks that they take one.
    assert set(without_row["constructors"]) - {"vander", "fill"} == {"nested_tensor"}


def test_every_python_function_with_a_device_is_decided(without_row: dict[str, list[str]]) -> None:
    assert len(without_row["python"]) > 100
    undecided = _undecided(without_row["python"], decided.PYTHON)
    assert set(undecided) <= {"torch:get_device_module"}  # an older torch keeps no answers, so the walk sees a function
    assert _stale(without_row["python"], decided.PYTHON) == []


def test_the_walk_notices_a_missing_row() -> None:
    names = ["_C:TensorBase.frobnicate", "_C:_xpu_frobnicate"]
    assert _undecided(names, decided.NATIVE) == ["_C:TensorBase.frobnicate"]


# ---------------------------------------------------------------- each entry point, called
# How each factory is called apart from the device.
FACTORIES: dict[str, tuple[Any, ...]] = {
    "arange": (3,), "asarray": ([1.0],), "as_tensor": ([1.0],), "bartlett_window": (4,), "blackman_window": (4,),
    "empty": (2,), "empty_like": (CPU,), "empty_permuted": ((2, 3), (0, 1)), "empty_strided": ((2,), (1,)), "eye": (2,),
    "full": ((2,), 1.0), "full_like": (CPU, 1.0), "hamming_window": (4,), "hann_window": (4,),
    "linspace": (0, 1, 3), "logspace": (0, 1, 3), "normal": (0.0, 1.0, (2,)), "ones": (2,), "ones_like": (CPU,),
    "rand": (2,), "rand_like": (CPU,), "randint": (3, (2,)), "randint_like": (CPU, 3), "randn": (2,),
    "randn_like": (CPU,), "randperm": (4,), "range": (0, 2), "scalar_tensor": (1.0,), "tensor": ([1.0],),
    "tril_indices": (2, 2), "triu_indices": (2, 2), "zeros": (2,), "zeros_like": (CPU,), "_efficientzerotensor": (2,),
    "fft.fftfreq": (4,), "fft.rfftfreq": (4,), "nested.nested_tensor": ([CPU],),
    "sparse_coo_tensor": ([[0, 1]], [1.0, 2.0], (2,)),
}  # fmt: skip
METHODS: dict[str, tuple[Any, ...]] = {
    "to": (), "new_empty": (2,), "new_empty_strided": ((2,), (1,)), "new_full": ((2,), 1.0), "new_ones": (2,),
    "new_tensor": ([1.0],), "new_zeros": (2,), "cuda": (),
}  # fmt: skip


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def _resolve(path: str) -> Any:
    value: Any = torch
    for part in path.split("."):
        value = getattr(value, part)
    return value


@pytest.mark.parametrize("name", FACTORIES)
def test_factory(name: str) -> None:
    function = _resolve(name)
    for value in VALUES:
        made = function(*FACTORIES[name], device=value)
        assert (made.device.type, made.device.index, made.is_cuda) == ("musa", _index(value), True), value
    assert function(*FACTORIES[name], device="cpu").device.type == "cpu"
    assert function(*FACTORIES[name]).device.type == "cpu"


@pytest.mark.parametrize("name", METHODS)
def test_method(name: str) -> None:
    for value in VALUES:
        made = getattr(CPU, name)(*METHODS[name], device=value)
        assert (made.device.type, made.device.index, made.is_cuda) == ("musa", _index(value), True), value
        if name in ("to", "cuda"):
            assert getattr(CPU, name)(value).device == made.device
    if name != "cuda":
        assert getattr(CPU, name)(*METHODS[name], device="cpu").device.type == "cpu"


@pytest.mark.parametrize("kind", ["csr", "csc", "bsr", "bsc"])
def test_compressed_sparse(kind: str) -> None:
    values = [[[1.0]], [[2.0]]] if kind.startswith("b") else [1.0, 2.0]
    for value in VALUES:
        made = getattr(torch, f"sparse_{kind}_tensor")([0, 1, 2], [0, 1], values, (2, 2), device=value)
        assert (made.device.type, made.device.index) == ("musa", _index(value))
    made = torch.sparse_compressed_tensor(
        [0, 1, 2], [0, 1], [1.0, 2.0], (2, 2), layout=torch.sparse_csr, device="cuda:1"
    )
    assert made.device == torch.device("cuda:1")


def test_out_of_the_ordinary() -> None:
    made = torch._nested_tensor_from_tensor_list([CPU], None, None, "cuda:1")
    assert made.device == torch.device("cuda:1")
    assert torch.nn.functional.pad(CPU.to("cuda:1"), (1, 1)).device.index == 1
    assert torch._C._nn._parse_to("cuda:1")[0] == torch._C._nn._parse_to(device="cuda:1")[0] == torch.device("cuda:1")
    assert torch._C._nn._parse_to(1)[0] == torch.device("cuda:1")
    with pytest.raises(RuntimeError, match=r"musa|device mismatch"):
        torch._assert_tensor_metadata(CPU, device="cuda")
    torch._assert_tensor_metadata(CPU.cuda(), device="cuda:0")
    sub = type("Sub", (torch.Tensor,), {"__torch_dispatch__": classmethod(lambda *args: None)})
    wrapper = torch.Tensor._make_wrapper_subclass(sub, (2,), device="cuda:1")
    assert wrapper.device == torch.device("cuda:1")
    made = torch._make_dep_token(device="cuda") if hasattr(torch, "_make_dep_token") else torch.zeros(1, device="cuda")
    assert made.is_cuda


@pytest.mark.parametrize(
    "call",
    [
        lambda: torch.empty_quantized((2,), torch.quantize_per_tensor(CPU, 1.0, 0, torch.quint8), device="cuda"),
        lambda: torch._empty_affine_quantized((2,), scale=1.0, zero_point=0, dtype=torch.quint8, device="cuda"),
        lambda: torch._empty_per_channel_affine_quantized(
            (2,), scales=CPU, zero_points=CPU, axis=0, dtype=torch.quint8, device="cuda"
        ),
        lambda: torch._cudnn_init_dropout_state(0.5, True, 1, dtype=torch.uint8, device="cuda"),
        lambda: torch.kaiser_window(4, device="cuda"),
        lambda: torch.from_file("nothing", size=1, device="cuda"),
        lambda: torch._resize_output_(torch.zeros(2, device="cuda"), (3,), "cuda"),
    ],
)
def test_what_a_backend_may_refuse_reaches_the_backend(call: Callable[[], Any]) -> None:
    try:
        made = call()
    except (RuntimeError, NotImplementedError) as error:
        assert "not compiled with CUDA" not in str(error)
        assert "CUDA' backend" not in str(error)
        assert "via torchada" not in str(error)
    else:
        assert made.is_cuda


@pytest.mark.parametrize("value", VALUES)
def test_constructors(value: Any) -> None:
    expected = torch.device("cuda", _index(value))
    assert torch.Generator(value).device.type == torch.Generator(device=value).device.type == "musa"
    assert torch.Generator(device=value).device.index in (None, expected.index)
    assert torch.Stream(value).device == torch.Stream(device=value).device == expected
    assert torch.Event(value).device.type == torch.Event(device=value).device.type == "musa"
    assert torch.UntypedStorage(4, device=value).device == expected


def test_default_generator_argument() -> None:
    generator = torch.Generator("cuda").manual_seed(5)
    first = torch.randn(4, generator=generator, device="cuda")
    assert torch.equal(first, torch.randn(4, generator=generator.manual_seed(5), device="cuda"))


def test_python_entry_points() -> None:
    assert torch.get_device_module("cuda") is torch.get_device_module("cuda:1") is torch.cuda
    assert torch.get_device_module("cpu") is torch.cpu
    assert torch.get_device_module(torch.device("cuda")) is torch.get_device_module() is torch.musa
    torch.accelerator.set_device_index("cuda:1")
    assert torch.accelerator.current_device_index() == 1
    torch.accelerator.set_device_index(torch.device("cuda:0"))
    assert torch.accelerator.current_device_index() == 0
    state = torch.cuda.get_rng_state(1)
    with torch.random.fork_rng(devices=[1], device_type="cuda"):
        torch.randn(3, device="cuda:1")
    assert torch.equal(torch.cuda.get_rng_state(1), state)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        x = torch.ones(2, device="cuda", requires_grad=True)
        (x * x).sum().backward()
    assert x.grad is not None and x.grad.tolist() == [2.0, 2.0] and x.grad.is_cuda


@pytest.mark.parametrize(
    "options", [{}, {"pin_memory_device": "cuda"}, {"pin_memory_device": "cuda:1", "num_workers": 1}]
)
def test_data_loader_pins(options: dict[str, Any]) -> None:
    data = torch.utils.data.TensorDataset(torch.arange(8.0))
    batches = [batch for (batch,) in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True, **options)]
    assert len(batches) == 2 and all(batch.is_pinned() and not batch.is_cuda for batch in batches)
    assert batches[1].cuda(non_blocking=True).tolist() == [4.0, 5.0, 6.0, 7.0]


def test_jit_load_with_map_location() -> None:
    module = torch.jit.trace_module(torch.nn.Linear(2, 2), {"forward": torch.ones(1, 2)})
    file = io.BytesIO()
    torch.jit.save(module, file)
    for target in ("cuda:1", torch.device("cuda:1")):
        file.seek(0)
        loaded = torch.jit.load(file, map_location=target)
        assert loaded.weight.device == torch.device("cuda:1")
        assert loaded(torch.ones(1, 2, device="cuda:1")).is_cuda


def test_fake_tensors_and_meta_modules() -> None:
    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        x = torch.zeros(2, device="cuda")
        assert x.device == torch.device("cuda:0") and x.is_cuda and x.cuda(1).device.index == 1
    with torch.device("meta"):
        module = torch.nn.Linear(2, 2)
    assert module.to_empty(device="cuda:1").weight.device.index == 1


def test_nested_layouts() -> None:
    parts = [torch.ones(2), torch.ones(3)]
    assert torch.nested.as_nested_tensor(parts, device="cuda:1").device.index == 1
    assert torch.nested.nested_tensor(parts, device="cuda:1", layout=torch.jagged).device.index == 1


def test_fork_rng_takes_the_type_in_its_position() -> None:
    state = torch.cuda.get_rng_state(0)
    with torch.random.fork_rng([0], True, "me", "devices", "cuda"):
        torch.randn(3, device="cuda:0")
    assert torch.equal(torch.cuda.get_rng_state(0), state)


@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:1"])
@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_with_the_same_random_numbers(device: str, reentrant: bool) -> None:
    x = torch.ones(256, device=device, requires_grad=True)
    y = torch.utils.checkpoint.checkpoint(torch.nn.functional.dropout, x, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad is not None and torch.equal(x.grad, y)
    assert 0 < int((y == 0).sum()) < 256
