"""What the simulated device computes and how it behaves, seen from torch: `device="musa"` and no CUDA names.

Results are compared with the CPU; errors, memory and streams with what CUDA does.
"""

import copy
import gc
import io
import json
import threading

import pytest
import torch
import torch.nn.functional as F
import torch_musa
from torch import nn

MUSA = torch.device("musa")
CORE = torch_musa._MUSAC


def on_musa(value):
    """The same value with every tensor moved to the device, gradient flags kept."""
    if isinstance(value, torch.Tensor):
        moved = value.detach().to(MUSA)
        return moved.requires_grad_() if value.requires_grad else moved
    if isinstance(value, (list, tuple)):
        return type(value)(on_musa(item) for item in value)
    return value


def assert_same(function, *arguments, rtol=1e-4, atol=1e-5):
    expected = function(*arguments)
    actual = function(*[on_musa(argument) for argument in arguments])
    torch.testing.assert_close(actual.cpu(), expected, rtol=rtol, atol=atol)
    assert actual.device == torch.device("musa", 0)


def allocated(device=0):
    gc.collect()
    return CORE._musa_memoryStats(device)["allocated_bytes"]["all"]["current"]


# ---- operators -----------------------------------------------------------------------------------------

MATRIX = torch.arange(20.0).reshape(4, 5) / 7 - 1
ROWS = torch.tensor([0, 3, 3])
COMPLEX = torch.complex(MATRIX, MATRIX.flip(0))

FUNCTIONS = {
    "add": lambda x: x + x * 2 - 1,
    "matmul": lambda x: x @ x.t(),
    "einsum": lambda x: torch.einsum("ij,kj->ik", x, x),
    "where": lambda x: torch.where(x > 0, x, -x),
    "sum_dim": lambda x: x.sum(dim=1, keepdim=True),
    "sort": lambda x: x.sort(descending=True)[0],
    "topk": lambda x: x.topk(2)[1],
    "unique": lambda x: torch.unique(x.round()),
    "nonzero": lambda x: (x > 0).nonzero(),
    "mask": lambda x: x[x > 0],
    "cat_stack": lambda x: torch.cat([torch.stack([x, x]).flatten(0, 1), x]),
    "cumsum": lambda x: x.cumsum(1),
    "softmax": lambda x: x.softmax(-1),
    "norm": lambda x: x.norm(dim=1),
    "svd": lambda x: torch.linalg.svdvals(x),
    "fft": lambda x: torch.fft.rfft(x).abs(),
    "interpolate": lambda x: F.interpolate(x[None, None], scale_factor=2, mode="bilinear", align_corners=False),
    "pad": lambda x: F.pad(x, (1, 2)),
    "half": lambda x: (x.half() @ x.half().t()).float(),
    "bfloat16": lambda x: (x.bfloat16() @ x.bfloat16().t()).float(),
    "unfold": lambda x: x.unfold(0, 2, 1).contiguous(),
    "batch_norm": lambda x: F.batch_norm(x, torch.zeros_like(x[0]), torch.ones_like(x[0]), training=True),
    "layer_norm": lambda x: F.layer_norm(x, (5,)),
    "vmap": lambda x: torch.func.vmap(lambda row: row * row.sum())(x),
    "grad": lambda x: torch.func.grad(lambda y: (y**3).sum())(x),
    "jvp": lambda x: torch.func.jvp(lambda y: y**2, (x,), (x,))[1],
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_operator(name):
    # half precision accumulates in another order on the CPU side too, so be lenient there
    assert_same(FUNCTIONS[name], MATRIX, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "function",
    [
        lambda x, i: x[i],
        lambda x, i: x.clone().index_put_((i,), x[i], accumulate=True),
        lambda x, i: torch.zeros_like(x).scatter_(0, i[None].expand(1, 3), x),
        lambda x, i: x.gather(0, i[None].expand(1, 3)),
        lambda x, i: x.index_select(0, i),
        lambda x, i: x.clone().index_add_(0, i, x[i]),
        lambda x, i: F.embedding(i, x),
        lambda x, i: F.one_hot(i, 4).float(),
    ],
)
def test_indexing(function):
    assert_same(function, MATRIX, ROWS)


def test_cpu_indices_are_accepted():
    x = MATRIX.to(MUSA)
    assert torch.equal(x[ROWS].cpu(), MATRIX[ROWS])
    x[ROWS] = 0
    assert x[3].abs().sum().item() == 0
    x[torch.tensor([True, False, False, False])] = 5
    assert x[0].tolist() == [5] * 5


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x.conj().clone(),
        lambda x: x.conj() @ x.t(),
        lambda x: torch.view_as_real(x.resolve_conj()),
        lambda x: x.conj().imag.clone(),
        lambda x: x.imag.neg() + x.conj().real,
        lambda x: torch.fft.fft(x.conj()),
        lambda x: x.conj().to("cpu").to(x.device),
    ],
)
def test_complex(function):
    assert_same(function, COMPLEX)


def test_views_share_memory():
    x = torch.zeros(4, 4, device=MUSA)
    x[1:3, 2].add_(1)
    x.t()[0].fill_(5)
    flat = x.view(2, 8)
    flat[0, 0] = 9
    x.unfold(0, 2, 2)[1].mul_(2)
    expected = torch.zeros(4, 4)
    expected[1:3, 2] += 1
    expected[:, 0] = 5
    expected[0, 0] = 9
    expected[2:] *= 2
    assert torch.equal(x.cpu(), expected)
    assert flat.data_ptr() == x.data_ptr()
    assert x[0]._is_view() and x.untyped_storage().data_ptr() == x[2].untyped_storage().data_ptr()
    version = x._version
    x[0].add_(1)
    assert x._version == version + 1


def test_out_arguments_and_resizing():
    out = torch.empty(0, device=MUSA)
    assert torch.add(torch.ones(3, device=MUSA), 1, out=out) is out
    assert out.tolist() == [2, 2, 2]
    values, indices = torch.empty(0, device=MUSA), torch.empty(0, dtype=torch.long, device=MUSA)
    torch.sort(torch.tensor([3.0, 1.0], device=MUSA), out=(values, indices))
    assert (values.tolist(), indices.tolist()) == ([1, 3], [1, 0])
    x = torch.ones(3, device=MUSA)
    x.resize_(5)
    assert x.shape == (5,) and x[:3].tolist() == [1, 1, 1]
    storage = x.untyped_storage()
    storage.resize_(0)
    assert storage.nbytes() == 0
    storage.resize_(20)
    assert x.fill_(4).tolist() == [4] * 5
    y = torch.empty(0, device=MUSA).set_(storage, 1, (2, 2), (1, 1))
    assert y.sum().item() == 16
    assert y.set_().numel() == 0 and y.device.type == "musa"


def test_sparse():
    i, v = torch.tensor([[0, 1, 1, 1], [2, 0, 2, 2]]), torch.tensor([3.0, 4.0, 5.0, 6.0])
    dense = torch.sparse_coo_tensor(i, v, (2, 3), check_invariants=True).to_dense()
    x = torch.sparse_coo_tensor(i.to(MUSA), v.to(MUSA), (2, 3), check_invariants=True)
    assert x.device.type == "musa" and not x.is_coalesced()
    assert torch.equal(x.to_dense().cpu(), dense)
    assert x.coalesce().indices().tolist() == [[0, 1, 1], [2, 0, 2]]
    assert torch.equal((x @ torch.ones(3, 2, device=MUSA)).cpu(), dense @ torch.ones(3, 2))
    assert torch.equal((x + x).to_dense().cpu(), dense * 2)
    assert torch.equal(x.cpu().to_dense(), dense)
    assert torch.equal(dense.to(MUSA).to_sparse_csr().to_dense().cpu(), dense)
    layer = nn.Embedding(5, 3, sparse=True).to(MUSA)
    layer(torch.tensor([1, 1], device=MUSA)).sum().backward()
    assert layer.weight.grad.is_sparse and layer.weight.grad.device.type == "musa"
    torch.optim.SGD(layer.parameters(), lr=0.1).step()


def test_nested():
    parts = [torch.ones(2, 3), torch.ones(1, 3)]
    for layout in (torch.strided, torch.jagged):
        x = torch.nested.nested_tensor(parts, layout=layout, device=MUSA)
        assert (x * 2).to_padded_tensor(0.0).sum().item() == 18


def test_nested_attention():
    parts = [torch.arange(12.0).view(3, 4) / 10, torch.arange(20.0).view(5, 4) / 20]

    def jagged(device):
        x = torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=True)
        heads = x.unflatten(-1, [2, 2]).transpose(1, 2)
        out = torch.nn.functional.scaled_dot_product_attention(heads, heads * 2, heads)
        out.values().sum().backward()
        return out.values(), x.grad.values()

    def strided(device):
        x = torch.nested.nested_tensor([part[None] for part in parts], device=device, requires_grad=True)
        weights = torch.matmul(x.clone(), x.transpose(-1, -2)).softmax(-1)
        assert x._nested_tensor_size().device == weights._nested_tensor_size().device == torch.device("cpu")
        out = torch.matmul(weights, x).to_padded_tensor(0.0)
        out.sum().backward()
        return out, x.grad.to_padded_tensor(0.0)

    for compute in (jagged, strided):
        for ours, theirs in zip(compute(MUSA), compute("cpu"), strict=True):
            assert ours.device.type == MUSA.type
            torch.testing.assert_close(ours.cpu(), theirs)


def test_an_operator_without_a_derivative():
    library = torch.library.Library("simulator_core", "FRAGMENT")
    try:
        library.define("half(Tensor x) -> Tensor")
        library.impl("half", lambda x: x.detach() / 2, "PrivateUse1")
        x = torch.ones(3, device=MUSA, requires_grad=True)
        assert (
            torch.ops.simulator_core.half(x).tolist() == torch.ops.simulator_core.half(x.detach()).tolist() == [0.5] * 3
        )
    finally:
        library._destroy()


# ---- modules -------------------------------------------------------------------------------------------

MODULES = {
    "linear": (lambda: nn.Sequential(nn.Linear(6, 8), nn.GELU(), nn.LayerNorm(8), nn.Linear(8, 3)), (4, 6)),
    "conv1d": (lambda: nn.Conv1d(3, 4, 3, padding=1, groups=1), (2, 3, 9)),
    "conv2d": (lambda: nn.Conv2d(4, 8, 3, padding=1, stride=2, groups=2), (2, 4, 8, 8)),
    "conv2d_no_bias": (lambda: nn.Conv2d(3, 8, 3, dilation=2, bias=False), (2, 3, 8, 8)),
    "conv3d": (lambda: nn.Conv3d(2, 3, 2), (1, 2, 4, 4, 4)),
    "conv_transpose": (lambda: nn.ConvTranspose2d(3, 4, 3, stride=2, output_padding=1), (2, 3, 5, 5)),
    "conv_transpose_groups": (lambda: nn.ConvTranspose2d(4, 6, 3, groups=2), (2, 4, 5, 5)),
    "cnn": (
        lambda: nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten()),
        (2, 3, 8, 8),
    ),
    "lstm": (lambda: nn.LSTM(5, 7, num_layers=2, bidirectional=True), (4, 3, 5)),
    "lstm_projected": (lambda: nn.LSTM(5, 7, proj_size=3), (4, 3, 5)),
    "gru": (lambda: nn.GRU(5, 7, num_layers=2), (4, 3, 5)),
    "gru_no_bias": (lambda: nn.GRU(5, 7, bias=False), (4, 3, 5)),
    "rnn": (lambda: nn.RNN(5, 7), (4, 3, 5)),
    "transformer": (lambda: nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True), (3, 4, 8)),
}


@pytest.mark.parametrize("name", MODULES)
def test_module_forward_and_backward(name):
    make, shape = MODULES[name]
    torch.manual_seed(0)
    cpu = make()
    musa = copy.deepcopy(cpu).to(MUSA)
    x = torch.randn(shape, requires_grad=True)
    y = on_musa(x)
    for module, value in ((cpu, x), (musa, y)):
        output = module(value)
        (output[0] if isinstance(output, tuple) else output).pow(2).sum().backward()
    torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-3, atol=1e-4)
    for p, q in zip(cpu.parameters(), musa.parameters(), strict=True):
        assert q.grad.device == torch.device("musa", 0)
        torch.testing.assert_close(q.grad.cpu(), p.grad, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("options", [{}, {"is_causal": True}])
def test_attention(options):
    torch.manual_seed(0)
    cpu = [torch.randn(2, 3, 6, 8, requires_grad=True) for _ in range(3)]
    musa = on_musa(cpu)
    outputs = [F.scaled_dot_product_attention(*inputs, **options) for inputs in (cpu, musa)]
    torch.testing.assert_close(outputs[1].cpu(), outputs[0], rtol=1e-4, atol=1e-5)
    for output in outputs:
        output.sum().backward()
    for x, y in zip(cpu, musa, strict=True):
        torch.testing.assert_close(y.grad.cpu(), x.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "optimizer",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9),
        lambda p: torch.optim.SGD(p, lr=0.1, fused=True),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=True),
        lambda p: torch.optim.Adam(p, lr=0.01, foreach=False),
        lambda p: torch.optim.AdamW(p, lr=0.01, fused=True),
        lambda p: torch.optim.RMSprop(p, lr=0.01),
    ],
    ids=["sgd", "sgd_fused", "adam_foreach", "adam", "adamw_fused", "rmsprop"],
)
def test_training_step_by_step(optimizer):
    torch.manual_seed(0)
    cpu = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    musa = copy.deepcopy(cpu).to(MUSA)
    x, y = torch.randn(10, 4), torch.randint(0, 3, (10,))
    for model, data, target in ((cpu, x, y), (musa, x.to(MUSA), y.to(MUSA))):
        steps = optimizer(model.parameters())
        for _ in range(5):
            steps.zero_grad()
            F.cross_entropy(model(data), target).backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            steps.step()
    for p, q in zip(cpu.parameters(), musa.parameters(), strict=True):
        torch.testing.assert_close(q.cpu(), p, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_autocast(dtype):
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)).to(MUSA)
    x, y = torch.randn(5, 4, device=MUSA), torch.randint(0, 3, (5,), device=MUSA)
    with torch.autocast("musa", dtype=dtype):
        low = model(x)
        assert low.dtype == dtype
        assert F.conv1d(torch.ones(1, 1, 3, device=MUSA), torch.ones(1, 1, 1, device=MUSA)).dtype == dtype
        assert F.scaled_dot_product_attention(x[None], x[None], x[None]).dtype == dtype
        assert torch.exp(low).dtype == torch.float32
        assert low.sum().dtype == torch.float32
        assert low.softmax(-1).dtype == torch.float32
        assert low.norm().dtype == torch.float32
        assert F.cross_entropy(low, y).dtype == torch.float32
        assert torch.addcmul(low, low, low.float()).dtype == torch.float32
        assert torch.cat([low, low.float()]).dtype == torch.float32
        assert (low + low).dtype == dtype
        with pytest.raises(RuntimeError, match="unsafe to autocast"):
            F.binary_cross_entropy(torch.rand(3, device=MUSA), torch.ones(3, device=MUSA))
        with torch.autocast("musa", enabled=False):
            assert model(x).dtype == torch.float32
    assert model(x).dtype == torch.float32


def test_autocast_leaves_float64_alone():
    x = torch.ones(3, device="musa", dtype=torch.float64)
    with torch.autocast("musa"):
        results = [torch.sum(x), torch.norm(x), torch.softmax(x, 0), torch.linalg.vector_norm(x), x.cumsum(0), x.exp()]
        half = torch.sum(x.half())
    assert {result.dtype for result in results} == {torch.float64} and half.dtype == torch.float32


def test_autocast_of_the_cpu_does_not_reach_the_device():
    x = torch.ones(3, 3, device=MUSA)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert (x @ x).dtype == torch.float32
        assert (x.cpu() @ x.cpu()).dtype == torch.bfloat16


def test_grad_scaler_skips_a_bad_step():
    weight = torch.ones(2, device=MUSA, requires_grad=True)
    steps = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.amp.GradScaler("musa", init_scale=4.0, growth_interval=1)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(steps)
    scaler.update()
    assert weight.tolist() == [1, 1] and scaler.get_scale() == 2.0
    steps.zero_grad()
    scaler.scale(weight.sum()).backward()
    scaler.step(steps)
    scaler.update()
    assert weight.tolist() == [0, 0] and scaler.get_scale() == 4.0


def test_checkpointing_and_saving():
    from torch.utils.checkpoint import checkpoint

    model = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).to(MUSA)
    for reentrant in (True, False):
        x = torch.randn(2, 3, device=MUSA, requires_grad=True)
        checkpoint(model, x, use_reentrant=reentrant).sum().backward()
        assert x.grad is not None
    twin = copy.deepcopy(model)
    assert twin[0].weight.data_ptr() != model[0].weight.data_ptr()
    buffer = io.BytesIO()
    torch.save(model.state_dict(), buffer)
    buffer.seek(0)
    loaded = torch.load(buffer, map_location="cpu", weights_only=True)
    assert torch.equal(loaded["0.weight"], model[0].weight.cpu())


# ---- random numbers ------------------------------------------------------------------------------------


def test_numbers_depend_on_the_seed_alone():
    torch_musa.manual_seed_all(3)
    first, second = torch.randn(5, device=MUSA), torch.randn(5, device=MUSA)
    assert not torch.equal(first, second)
    torch_musa.manual_seed_all(3)
    assert torch.equal(first, torch.randn(5, device=MUSA))
    assert torch.equal(first.cpu(), torch.randn(5, device="musa:1").cpu())
    torch_musa.manual_seed_all(4)
    assert not torch.equal(first, torch.randn(5, device=MUSA))
    generator = torch.Generator(device="musa")
    generator.manual_seed(3)
    assert generator.initial_seed() == 3 and generator.device.type == "musa"
    assert torch.equal(first, torch.randn(5, device=MUSA, generator=generator))


def test_generator_state():
    generator = torch.Generator(device="musa")
    generator.manual_seed(7)
    torch.rand(3, device=MUSA, generator=generator)
    state = generator.get_state()
    assert state.dtype == torch.uint8 and state.shape == (16,)  # seed and offset, as on CUDA
    assert generator.get_offset() == 4
    order = torch.randperm(9, device=MUSA, generator=generator)
    generator.set_state(state)
    assert torch.equal(order, torch.randperm(9, device=MUSA, generator=generator))
    with pytest.raises(RuntimeError, match="wrong size"):
        generator.set_state(torch.zeros(5, dtype=torch.uint8))
    with pytest.raises(RuntimeError, match="multiple of 4"):
        generator.set_offset(3)
    with pytest.raises(RuntimeError, match="Expected a 'musa' device type for generator but found 'cpu'"):
        torch.rand(3, device=MUSA, generator=torch.Generator())
    for make in (
        lambda: torch.rand(3, generator=generator),
        lambda: torch.randperm(3, generator=generator),
        lambda: torch.ones(3).normal_(generator=generator),
        lambda: torch.bernoulli(torch.ones(3), generator=generator),
    ):
        with pytest.raises(RuntimeError, match="Expected a 'cpu' device type for generator but found 'musa'"):
            make()


def test_device_randomness_leaves_the_cpu_stream_alone():
    torch.manual_seed(0)
    expected = torch.rand(3)
    torch.manual_seed(0)
    F.dropout(torch.ones(10, device=MUSA))
    torch.native_dropout(torch.ones(4, device=MUSA), 0.5, True)
    torch.bernoulli(torch.full((3,), 0.5, device=MUSA))
    torch.multinomial(torch.ones(4, device=MUSA), 2)
    torch.randperm(4, device=MUSA)
    F.rrelu(torch.ones(4, device=MUSA), training=True)
    assert torch.equal(torch.rand(3), expected)


def test_random_numbers_look_random():
    torch_musa.manual_seed_all(0)
    x = torch.cat([torch.randn(100, device=MUSA) for _ in range(100)])
    assert abs(x.mean().item()) < 0.05 and abs(x.std().item() - 1) < 0.05
    assert torch.unique(x).numel() > 9990


# ---- devices -------------------------------------------------------------------------------------------

OTHER = "musa:1"


@pytest.mark.parametrize(
    "mixture",
    [
        lambda: torch.ones(3, device=MUSA) + torch.ones(3),
        lambda: torch.ones(3) + torch.tensor(1.0, device=MUSA),
        lambda: torch.ones(3, 3, device=MUSA) @ torch.ones(3, 3),
        lambda: torch.mm(torch.ones(2, 2, device=MUSA), torch.ones(2, 2, device=OTHER)),
        lambda: torch.ones(3, device=MUSA) + torch.ones(3, device=OTHER),
        lambda: torch.cat([torch.ones(3, device=MUSA), torch.ones(3)]),
        lambda: F.linear(torch.ones(3, 3, device=MUSA), torch.ones(3, 3)),
        lambda: F.embedding(torch.tensor([1]), torch.ones(3, 3, device=MUSA)),
        lambda: F.conv2d(torch.ones(1, 1, 3, 3, device=MUSA), torch.ones(1, 1, 1, 1)),
        lambda: torch.ones(3, device=MUSA).index_select(0, torch.tensor([0])),
        lambda: torch.add(torch.ones(3, device=MUSA), 1, out=torch.empty(3)),
        lambda: torch.ones(()).add_(torch.ones((), device=MUSA)),
    ],
)
def test_mixed_devices_are_refused(mixture):
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least two"):
        mixture()


def test_cpu_scalars_are_accepted():
    x = torch.ones(3, device=MUSA)
    assert (x + torch.tensor(2.0)).tolist() == [3, 3, 3]
    assert (torch.tensor(2.0) * x).device.type == "musa"
    assert torch.where(x > 0, x, torch.tensor(0.0)).tolist() == [1, 1, 1]


def test_two_devices():
    x = torch.ones(3, device=OTHER)
    y = x * 2
    assert y.device == torch.device(OTHER) and torch.empty_like(y).device == y.device
    assert y.to("musa:0").tolist() == [2, 2, 2]
    assert y.to("cpu").to(OTHER).device == y.device
    with torch_musa.device(1):
        assert torch_musa.current_device() == 1
        assert torch.ones(1, device="musa").device.index == 1
    assert torch_musa.current_device() == 0
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch_musa.current_device()))
    with torch_musa.device(1):
        thread.start()
        thread.join()
    assert seen == [0]  # the current device belongs to the thread
    x.requires_grad_()
    (x.to("musa:0") * 3).sum().backward()
    assert x.grad.device == torch.device(OTHER) and x.grad.tolist() == [3, 3, 3]


def test_invalid_device():
    for make in (lambda: torch.ones(2, device="musa:7"), lambda: torch.ones(2).to("musa:2")):
        with pytest.raises(RuntimeError, match="MUSA error: invalid device ordinal"):
            make()
    with pytest.raises(RuntimeError, match="MUSA error: invalid device ordinal"):
        CORE._musa_setDevice(99)
    assert torch_musa.current_device() == 0


def test_properties():
    properties = CORE and torch_musa.get_device_properties(0)
    assert properties.name.endswith("(simulated)")
    assert (properties.major, properties.minor) == torch_musa.get_device_capability(0)
    assert properties.total_memory == CORE._musart.musaMemGetInfo(0)[1]
    assert properties.multi_processor_count > 0
    assert repr(properties).startswith("_MusaDeviceProperties(name=")
    with pytest.raises(TypeError):
        type(properties)()


# One interpreter imports torch and forks for every setting, which the device reads when it is loaded.
SETTINGS_PROGRAM = """
import json, os, sys
import torch
import torchada.simulator
torchada.simulator.install()
for variables, expression in json.loads(sys.argv[1]):
    read, write = os.pipe()
    if os.fork() == 0:
        os.environ.update(variables)
        try:
            import torch_musa
            answer = repr(eval(expression))
        except Exception as error:
            answer = f"{type(error).__name__}: {error}"
        os.write(write, answer.encode())
        os._exit(0)
    os.close(write)
    print(json.dumps(open(read).read()))
    os.wait()
"""
SETTINGS = [
    ({}, "torch_musa.device_count(), torch_musa.get_device_name()", "(2, 'MTT S5000 (simulated)')"),
    ({"TORCHADA_SIM_DEVICES": "3"}, "torch_musa.device_count()", "3"),
    ({"TORCHADA_SIM_DEVICES": "0"}, "torch_musa.device_count(), torch_musa.is_available()", "(0, False)"),
    ({"MUSA_VISIBLE_DEVICES": "1"}, "torch_musa.device_count()", "1"),
    ({"MUSA_VISIBLE_DEVICES": "1,0"}, "torch_musa.device_count()", "2"),
    ({"MUSA_VISIBLE_DEVICES": "0,7,1"}, "torch_musa.device_count()", "1"),
    ({"MUSA_VISIBLE_DEVICES": "0,0"}, "torch_musa.device_count()", "0"),
    ({"MUSA_VISIBLE_DEVICES": ""}, "torch_musa.device_count()", "0"),
    # as a driver does: at the first use, once
    ({}, "os.environ.update(MUSA_VISIBLE_DEVICES='1'), torch_musa.device_count()", "(None, 1)"),
    ({"TORCHADA_SIM_MEMORY": "64MiB"}, "torch_musa.mem_get_info()[1]", str(64 << 20)),
    ({"TORCHADA_SIM_MEMORY": "1.5g"}, "torch_musa.mem_get_info()[1]", str(3 << 29)),
    ({"TORCHADA_SIM_MEMORY": "1000000"}, "torch_musa.mem_get_info()[1]", "1000000"),
    ({"TORCHADA_SIM_DEVICE": "S4000"}, "torch_musa.get_device_capability()", "(2, 2)"),
    ({"TORCHADA_SIM_DEVICE": "s80"}, "torch_musa.get_device_name()", "'MTT S80 (simulated)'"),
    ({"TORCHADA_SIM_DEVICE": "S3000"}, "torch_musa.get_device_capability()", "(2, 1)"),
    ({"TORCHADA_SIM_DEVICE": "S5000"}, "torch_musa.get_device_capability()", "(3, 1)"),
    ({"TORCHADA_SIM_DEVICES": "many"}, "0", "ValueError: TORCHADA_SIM_DEVICES='many' is not a number of devices; "),
    ({"TORCHADA_SIM_DEVICES": "17"}, "0", "ValueError: TORCHADA_SIM_DEVICES='17' is not a number of devices; "),
    ({"TORCHADA_SIM_DEVICES": "-1"}, "0", "ValueError: TORCHADA_SIM_DEVICES='-1' is not a number of devices; "),
    ({"TORCHADA_SIM_MEMORY": "lots"}, "0", "ValueError: TORCHADA_SIM_MEMORY='lots' is not an amount of memory; "),
    ({"TORCHADA_SIM_MEMORY": "-1G"}, "0", "ValueError: TORCHADA_SIM_MEMORY='-1G' is not an amount of memory; "),
    ({"TORCHADA_SIM_MEMORY": "8 apples"}, "0", "ValueError: TORCHADA_SIM_MEMORY='8 apples' is not an amount of memory"),
    (
        {"TORCHADA_SIM_DEVICE": "H100"},
        "0",
        "ValueError: TORCHADA_SIM_DEVICE='H100' is not a simulated device; choose one of S80, S3000, S4000, S5000",
    ),
]


def test_settings(run_python):
    cases = json.dumps([case[:2] for case in SETTINGS])
    unset = dict.fromkeys(
        ("TORCHADA_SIM_DEVICES", "TORCHADA_SIM_MEMORY", "TORCHADA_SIM_DEVICE", "MUSA_VISIBLE_DEVICES")
    )
    done = run_python(SETTINGS_PROGRAM, cases, env={**unset, "TORCHADA": "0", "TORCHADA_SIMULATE": None})
    answers = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(answers) == len(SETTINGS)
    for (variables, expression, expected), answer in zip(SETTINGS, answers, strict=True):
        assert answer == expected or (": " in expected and answer.startswith(expected)), (variables, expression, answer)


# ---- memory --------------------------------------------------------------------------------------------


def test_statistics_follow_tensors():
    gc.collect()  # what earlier tests left in cycles
    before, uncounted = allocated(), _uncounted()
    peak = CORE._musa_resetPeakMemoryStats(0)
    x = torch.ones(1 << 20, device=MUSA)
    y = x + x
    z = torch.empty(5, device=MUSA)
    stats = CORE._musa_memoryStats(0)
    assert stats["allocated_bytes"]["all"]["current"] == before + 2 * (4 << 20) + 512
    assert stats["allocated_bytes"]["all"]["peak"] >= before + 2 * (4 << 20) + 512
    assert stats["reserved_bytes"]["all"]["current"] >= stats["allocated_bytes"]["all"]["current"]
    del x, y, z
    assert allocated() == before and peak is None and _uncounted() == uncounted


def _uncounted():
    """What is there and was not allocated since the counters were reset last: it changes by a reset only."""
    stats = CORE._musa_memoryStats(0)
    counted = ("allocated_bytes", "active_bytes", "requested_bytes", "allocation", "active")
    return [p["current"] - p["allocated"] + p["freed"] for key in counted for p in stats[key].values()]


def test_statistics_of_a_fresh_process(run_python):
    """Sizes and counts of the caching allocator, as CUDA's would be for the same requests."""
    code = """
    import torchada, torch, torch_musa
    stats = lambda: torch_musa.memory_stats()
    MiB = 1 << 20
    small = torch.empty(100, dtype=torch.uint8, device="musa")
    s = stats()
    assert (s["allocated_bytes.all.current"], s["requested_bytes.all.current"]) == (512, 100)
    assert (s["reserved_bytes.all.current"], s["segment.small_pool.current"]) == (2 * MiB, 1)
    assert (s["inactive_split.all.current"], s["inactive_split_bytes.all.current"]) == (1, 2 * MiB - 512)
    middle = torch.empty(3 * MiB, dtype=torch.uint8, device="musa")
    assert stats()["reserved_bytes.large_pool.current"] == 20 * MiB
    large = torch.empty(18 * MiB, dtype=torch.uint8, device="musa")
    assert stats()["reserved_bytes.large_pool.current"] == 20 * MiB + 18 * MiB
    address = large.data_ptr()
    del large
    assert stats()["reserved_bytes.large_pool.current"] == 38 * MiB  # cached
    large = torch.empty(18 * MiB, dtype=torch.uint8, device="musa")
    assert large.data_ptr() == address
    with torch_musa.stream(torch_musa.Stream()):
        elsewhere = torch.empty(100, dtype=torch.uint8, device="musa")
    assert stats()["segment.small_pool.current"] == 2  # a stream keeps its own cache
    segments = torch_musa.memory_snapshot()
    assert sum(s["total_size"] for s in segments) == stats()["reserved_bytes.all.current"]
    assert sum(b["size"] for s in segments for b in s["blocks"]) == stats()["reserved_bytes.all.current"]
    assert {s["segment_type"] for s in segments} == {"small", "large"}
    del small, middle, large, elsewhere
    assert stats()["allocated_bytes.all.current"] == 0 and stats()["inactive_split.all.current"] == 0
    torch_musa.empty_cache()
    s = stats()
    assert s["reserved_bytes.all.current"] == 0 and s["segment.all.current"] == 0
    assert s["num_device_alloc"] == s["num_device_free"] == 4
    torch_musa.reset_accumulated_memory_stats()
    torch_musa.reset_peak_memory_stats()
    assert not any(v for k, v in stats().items() if k != "max_split_size"), stats()
    print("ok")
    """
    assert run_python(code).stdout.strip() == "ok"


def test_out_of_memory_and_recovery(run_python):
    code = """
    import torchada, torch, torch_musa
    seen = []
    torch_musa._MUSAC._musa_attach_out_of_memory_observer(lambda *arguments: seen.append(arguments))
    half = torch.ones(40 << 20, dtype=torch.uint8, device="musa")
    for make in (lambda: torch.empty(40 << 20, dtype=torch.uint8, device="musa"), lambda: half + half):
        try:
            make()
        except torch.OutOfMemoryError as error:
            print(error)
        else:
            raise SystemExit("no error")
    assert isinstance(torch.OutOfMemoryError("x"), RuntimeError)
    assert [entry[:3] for entry in seen] == [(0, 40 << 20, 64 << 20)] * 2, seen
    other = torch.ones(40 << 20, dtype=torch.uint8, device="musa:1")  # has its own memory
    del half
    again = torch.empty(50 << 20, dtype=torch.uint8, device="musa")  # what was cached is given back first
    stats = torch_musa.memory_stats()
    assert stats["num_ooms"] == 2 and stats["num_alloc_retries"] == 3, stats
    del again
    torch_musa.set_per_process_memory_fraction(0.5)
    torch_musa.empty_cache()
    try:
        torch.empty(33 << 20, dtype=torch.uint8, device="musa")
    except torch.OutOfMemoryError as error:
        print(error)
    torch.empty(20 << 20, dtype=torch.uint8, device="musa")
    """
    done = run_python(code, env={"TORCHADA_SIM_MEMORY": "64M"})
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    for line in lines[:2]:
        assert line.startswith(
            "CUDA out of memory. Tried to allocate 40.00 MiB. GPU 0 has a total capacity of 64.00 MiB of which "
            "24.00 MiB is free. "
        )
        assert "40.00 MiB is allocated by PyTorch" in line
        assert line.endswith("(MUSA out of memory.)")  # the device's own words; the first are torchada's
    assert "32.00 MiB allowed" in lines[2]


def test_pinned_memory():
    x = torch.ones(3).pin_memory()
    assert x.is_pinned() and not torch.ones(3).is_pinned()
    assert torch.empty(3, pin_memory=True).is_pinned()
    y = x.to(MUSA, non_blocking=True)
    assert y.to("cpu", non_blocking=True).tolist() == [1, 1, 1]
    with pytest.raises(RuntimeError, match="only dense CPU tensors can be pinned"):
        torch._C.TensorBase.pin_memory(y)


def test_memory_pools():
    pool = CORE._MemPool()
    assert len(pool.id) == 2 and pool.allocator is None
    address = torch.empty(512, dtype=torch.uint8, device=MUSA).data_ptr()
    with torch_musa.use_mem_pool(pool):
        inside = torch.empty(512, dtype=torch.uint8, device=MUSA)
    assert inside.data_ptr() != address
    assert torch.empty(512, dtype=torch.uint8, device=MUSA).data_ptr() == address


def test_allocator_settings():
    setting = CORE._musa_musaCachingAllocator_set_allocator_settings
    try:
        setting("expandable_segments:True,roundup_power2_divisions:[256:1,512:2],max_split_size_mb:64")
        shown = CORE._musa_memorySnapshot()["allocator_settings"]
        assert shown["expandable_segments"] is True and shown["max_split_size"] == 64 << 20
        assert shown["PYTORCH_MUSA_ALLOC_CONF"].startswith("expandable_segments:True")
        with pytest.raises(RuntimeError, match="Unrecognized CachingAllocator option: speed"):
            setting("speed:fast")
        with pytest.raises(RuntimeError, match="has no value"):
            setting("expandable_segments")
    finally:
        setting("")


def test_storages():
    storage = torch.ones(4).untyped_storage()
    moved = CORE._musa(storage)
    assert moved.device.type == "musa" and CORE._is_musa(moved) and not CORE._is_musa(storage)
    assert moved.cpu().tolist() == storage.tolist()
    assert CORE._storage_Use_Count(moved._cdata) >= 1
    assert CORE._musa(torch.ones(2), 1).device == torch.device(OTHER)


def test_legacy_types():
    kind = torch_musa.FloatTensor
    x = kind(2, 3)
    assert x.shape == (2, 3) and x.device.type == "musa" and x.dtype == torch.float32
    assert isinstance(x, kind) and not isinstance(x, torch_musa.LongTensor) and not isinstance(x.cpu(), kind)
    assert torch._C.TensorBase.type(x, torch_musa.LongTensor).dtype == torch.int64
    assert kind([1, 2]).tolist() == [1, 2]
    assert kind.dtype == torch.float32 and kind.__name__ == "FloatTensor" and kind.__module__ == "torch.musa"


# ---- streams and events --------------------------------------------------------------------------------


def test_streams():
    stream = CORE._MusaStreamBase(priority=0)
    assert isinstance(stream, torch.Stream) and stream.device == torch.device("musa", 0)
    assert stream.query() and stream.synchronize() is None and stream.musa_stream != 0
    assert CORE._MusaStreamBase.priority_range() == (0, -1)
    assert CORE._MusaStreamBase(priority=-5).priority == -1
    packed = (stream.stream_id, stream.device_index, stream.device_type)
    default = CORE._musa_getCurrentStream(0)
    assert default == CORE._musa_getDefaultStream(0) and default[0] == 0
    try:
        CORE._musa_setStream(*packed)
        assert CORE._musa_getCurrentStream(0) == packed
        assert CORE._musa_getCurrentRawStream(0) == stream.musa_stream
        seen = []
        thread = threading.Thread(target=lambda: seen.append(CORE._musa_getCurrentStream(0)))
        thread.start()
        thread.join()
        assert seen == [default]  # streams are current per thread
    finally:
        CORE._musa_setStream(*default)
    same = CORE._MusaStreamBase(stream_ptr=stream.musa_stream)
    assert same == stream
    assert len({CORE._MusaStreamBase().stream_id for _ in range(64)}) == 32  # handed out in turn
    with pytest.raises(RuntimeError, match="invalid resource handle"):
        CORE._MusaStreamBase(stream_ptr=12345678)


def test_events():
    start, end = CORE._MusaEventBase(enable_timing=True), CORE._MusaEventBase(enable_timing=True)
    assert isinstance(start, torch.Event) and start.device is None and start.query()
    stream = CORE._MusaStreamBase()
    with pytest.raises(ValueError, match="must be recorded"):
        start.elapsed_time(end)
    start.record(stream)
    CORE._musa_sleep(20_000_000)
    end.record(stream)
    assert 19 < start.elapsed_time(end) < 5000
    assert start.device == torch.device("musa", 0) and start.musa_event != 0
    stream.wait_event(start)
    start.wait(stream)
    start.synchronize()
    with pytest.raises(ValueError, match="enable_timing=True"):
        CORE._MusaEventBase().elapsed_time(end)
    with pytest.raises(RuntimeError, match="does not match recording stream's device"):
        start.record(CORE._MusaStreamBase(stream_id=1, device_index=1, device_type=stream.device_type))
    torch.ones(3, device=MUSA).record_stream(stream)
    with pytest.raises(RuntimeError, match="invalid argument"):  # not made for other processes
        start.ipc_handle()


def test_counters():
    x = torch.ones(4, device=MUSA)
    CORE._sim_reset_counters()
    x + x
    x.view(2, 2).t()
    assert CORE._sim_counters()["kernel_launches"] == 1
    x.sum().item()
    torch.ones(2).to(MUSA).cpu()
    counted = CORE._sim_counters()
    assert counted["host_syncs"] == 3 and counted["host_to_device_bytes"] == 8
    assert (counted["host_to_device"], counted["device_to_host"]) == (1, 2)


# ---- processes and threads -----------------------------------------------------------------------------


def test_use_after_fork_is_an_error(run_python):
    code = """
    import os, torchada, torch, torch_musa
    x = torch.ones(2, device="musa")
    pid = os.fork()
    if pid == 0:
        assert torch_musa._MUSAC._musa_isInBadFork()
        assert (torch.ones(2) + 1).tolist() == [2, 2]  # the CPU still works
        del x
        try:
            torch.ones(2, device="musa")
        except RuntimeError as error:
            print("child:", error, flush=True)
        os._exit(0)
    os.waitpid(pid, 0)
    assert not torch_musa._MUSAC._musa_isInBadFork()
    print("parent:", (x + x).tolist())
    """
    output = run_python(code).stdout
    assert "child: " in output and "forked subprocess" in output and "parent: [2.0, 2.0]" in output


def test_use_after_an_early_fork_works(run_python):
    code = """
    import os, torchada, torch, torch_musa
    pid = os.fork()
    if pid == 0:
        print(torch.ones(2, device="musa").sum().item(), flush=True)
        os._exit(0)
    raise SystemExit(os.waitpid(pid, 0)[1])
    """
    assert run_python(code).stdout.strip() == "2.0"


@pytest.mark.parametrize("ending", ["", "raise SystemExit(3)", "import sys; sys.exit(0)"])
def test_exit_after_backward_is_clean(run_python, ending):
    # A reentrant backward leaves Python objects with autograd's device thread for a moment.
    code = f"""
    import torchada, torch
    from torch import nn
    from torch.utils.checkpoint import checkpoint
    layer = nn.Sequential(nn.Linear(3, 3), nn.Dropout()).to("musa")
    checkpoint(layer, torch.randn(2, 3, device="musa", requires_grad=True), use_reentrant=True).sum().backward()
    kept = layer(torch.randn(2, 3, device="musa"))
    {ending}
    """
    done = run_python(code, ok=False)
    assert done.returncode == (3 if "3" in ending else 0) and done.stderr == ""


def test_threads():
    failures = []

    def work(device):
        try:
            for _ in range(100):
                x = torch.randn(64, device=device, requires_grad=True)
                (x * 2).sum().backward()
                assert x.grad.sum().item() == 128
        except BaseException as error:
            failures.append(error)

    before = allocated(0), allocated(1)
    threads = [threading.Thread(target=work, args=(f"musa:{i % 2}",)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures
    assert (allocated(0), allocated(1)) == before


def test_unknown_operator_names_itself():
    with pytest.raises(NotImplementedError, match=r"aten::_cudnn_rnn_flatten_weight.*simulated device"):
        torch._cudnn_rnn_flatten_weight([torch.ones(3, device=MUSA)], 1, 3, 2, 3, 0, 1, False, False)
