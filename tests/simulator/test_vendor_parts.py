"""What the vendor's packages have more than torch: fused optimizers, quantization modules, operators, small tools."""

import pytest

from tests.simulator.forked import Forked


@pytest.fixture(scope="module")
def process():
    forked = Forked()
    yield forked
    forked.close()


@pytest.fixture
def check(process):
    return lambda code, **env: process.run("import torch_musa\n" + code, **env)


# ---- optimizers -------------------------------------------------------------------------------------

TRAIN = """
from torch_musa.optim import FusedAdam, FusedAdamW, FusedLAMB

def model(seed=0, **options):
    torch.manual_seed(seed)
    return torch.nn.Sequential(torch.nn.Linear(4, 8, **options), torch.nn.Tanh(), torch.nn.Linear(8, 3, **options))

def train(net, optimizer, steps=5, device="cpu", dtype=torch.float32):
    torch.manual_seed(1)
    for _ in range(steps):
        x = torch.randn(6, 4).to(device, dtype)
        def closure():
            optimizer.zero_grad()
            loss = net(x).pow(2).sum()
            loss.backward()
            return loss
        last = optimizer.step(closure)
    return last

def close(one, other, tolerance=1e-6):
    for a, b in zip(one.parameters(), other.parameters(), strict=True):
        assert torch.allclose(a, b.cpu(), atol=tolerance, rtol=1e-5), (a - b.cpu()).abs().max()
"""


@pytest.mark.parametrize(
    "options",
    [
        "{}",
        "dict(amsgrad=True, weight_decay=0.1)",
        "dict(maximize=True, betas=(0.8, 0.9), eps=1e-6)",
        "dict(lr=torch.tensor(0.01))",
    ],
)
@pytest.mark.parametrize("kind", ["Adam", "AdamW"])
def test_fused_adam_is_adam(check, kind, options):
    check(
        TRAIN
        + f"""
options = {options}
ours, torchs = model().musa(), model()
one = train(ours, Fused{kind}(ours.parameters(), **options), device="musa")
two = train(torchs, torch.optim.{kind}(torchs.parameters(), **options))
close(torchs, ours)
assert abs(one.item() - two.item()) < 1e-4 * abs(two.item())
"""
    )


def test_fused_adam_state_and_scaling(check):
    check(
        TRAIN
        + """
import copy, pickle
for kind in (FusedAdam, FusedAdamW):
    # a saved state continues exactly; the counter stays on the device
    whole, halves = model().musa(), model().musa()
    one = kind(whole.parameters()); train(whole, one, 6, "musa")
    two = kind(halves.parameters()); train(halves, two, 3, "musa")
    state = pickle.loads(pickle.dumps(two.state_dict()))
    three = kind(halves.parameters()); three.load_state_dict(state)
    step = three.state[halves[0].weight]["step"]
    assert step.is_musa and step.dtype == torch.float32 and step.item() == 3
    torch.manual_seed(1)
    for _ in range(3):
        torch.randn(6, 4)
    for _ in range(3):
        three.zero_grad(); halves(torch.randn(6, 4).musa()).pow(2).sum().backward(); three.step()
    close(whole.cpu(), halves)
    # a step with infinite gradients is no step; the scale is taken out of the others
    net = model().musa(); optimizer = kind(net.parameters()); scaler = torch.amp.GradScaler("musa", init_scale=64.0)
    same = model(); reference = getattr(torch.optim, kind.__name__[5:])(same.parameters())
    x = torch.randn(6, 4)
    for bad in (False, True, False):
        optimizer.zero_grad(); scaler.scale(net(x.musa()).pow(2).sum()).backward()
        if bad:
            net[0].weight.grad[0, 0] = float("inf")
        scaler.step(optimizer); scaler.update()
        if not bad:
            reference.zero_grad(); same(x).pow(2).sum().backward(); reference.step()
    close(same, net, 1e-5)
    assert optimizer.state[net[0].weight]["step"].item() == 2 and scaler.get_scale() == 32.0
"""
    )


def test_optimizers_refuse_what_they_cannot(check):
    check(
        TRAIN
        + """
parameter = [torch.nn.Parameter(torch.ones(2, device="musa"))]
for make, kind, text in (
    (lambda: FusedAdam(parameter, lr=-1.0), ValueError, "learning rate"),
    (lambda: FusedAdamW(parameter, eps=-1.0), ValueError, "epsilon"),
    (lambda: FusedAdam(parameter, betas=(0.9, 1.0)), ValueError, "beta parameter at index 1"),
    (lambda: FusedAdam(parameter, lr=torch.ones(2)), (ValueError, RuntimeError), ""),
    (lambda: FusedAdam(parameter, differentiable=True), RuntimeError, "differentiable"),
    (lambda: FusedAdam([]), ValueError, "empty parameter list"),
    (lambda: FusedLAMB(parameter, amsgrad=True), RuntimeError, "AMSGrad"),
):
    try:
        make()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)
for kind in (FusedAdam, FusedLAMB):
    embedding = torch.nn.Embedding(4, 2, sparse=True).musa()
    optimizer = kind(embedding.parameters())
    embedding(torch.tensor([1], device="musa")).sum().backward()
    try:
        optimizer.step()
    except RuntimeError as error:
        assert "sparse gradients" in str(error), error
    else:
        raise AssertionError(kind)
"""
    )


def test_fused_lamb(check):
    check(
        TRAIN
        + """
def reference(params, grads, state, step, lr, decay, adam_w, averaging, most):
    b1, b2, eps = 0.9, 0.999, 1e-6
    norm = torch.cat([g.flatten() for g in grads]).norm()
    clip = torch.clamp(norm / most, min=1.0)
    for p, g, (m, v) in zip(params, grads, state):
        g = g / clip
        if not adam_w:
            g = g + decay * p
        m.mul_(b1).add_(g, alpha=1 - b1 if averaging else 1.0)
        v.mul_(b2).addcmul_(g, g, value=1 - b2)
        update = (m / (1 - b1**step)) / ((v / (1 - b2**step)).sqrt() + eps)
        if adam_w:
            update = update + decay * p
        p.sub_(lr * (p.norm() / update.norm() if decay else 1.0) * update)

for decay, adam_w, averaging, most in ((0.01, True, True, 1.0), (0.1, False, True, 100.0), (0.0, True, False, 1.0)):
    ours, plain = model().musa(), model()
    optimizer = FusedLAMB(ours.parameters(), lr=0.02, weight_decay=decay, adam_w_mode=adam_w, grad_averaging=averaging,
                          max_grad_norm=most)
    state = [(torch.zeros_like(p), torch.zeros_like(p)) for p in plain.parameters()]
    for step in range(1, 4):
        x = torch.randn(6, 4)
        optimizer.zero_grad(); ours(x.musa()).pow(2).sum().backward(); optimizer.step()
        plain.zero_grad(); plain(x).pow(2).sum().backward()
        with torch.no_grad():
            params = list(plain.parameters())
            reference(params, [p.grad for p in params], state, step, 0.02, decay, adam_w, averaging, most)
    close(plain, ours, 1e-5)
half = model(dtype=torch.bfloat16).musa()
before = half[0].weight.detach().clone()
train(half, FusedLAMB(half.parameters()), 2, "musa", torch.bfloat16)
assert half[0].weight.dtype == torch.bfloat16 and not half[0].weight.equal(before)
"""
    )


def test_kernels_over_lists(check):
    check(
        """
from torch_musa.multi_tensor_apply import MultiTensorApply, multi_tensor_applier
from torch_musa import _ext
tensors = [torch.full((3,), 2.0, device="musa"), torch.full((4,), 1.0, device="musa")]
skip = torch.zeros(1, dtype=torch.int, device="musa")
norm, each = multi_tensor_applier(_ext.multi_tensor_l2norm, skip, [tensors], True)
assert abs(norm.item() - 4.0) < 1e-6 and [round(v, 4) for v in each.tolist()] == [3.4641, 2.0]
assert MultiTensorApply(16).chunk_size == 16 and MultiTensorApply.available
"""
    )


# ---- quantization modules -----------------------------------------------------------------------------


def test_quantization_modules(check):
    check(
        """
import torch.ao.nn.intrinsic as nni
from torch.ao.quantization import QConfig, MinMaxObserver, FakeQuantize
assert nni.ConvSiLU2d is torch_musa.core.ao.nn.intrinsic.ConvSiLU2d
assert nni.quantized.ConvAddSiLU2d and nni.qat.ConvBnSiLU2d
torch.manual_seed(0)
nn = torch.nn
x, y = torch.randn(2, 3, 6, 6), torch.randn(2, 4, 6, 6)
conv, bn = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
silu = nn.functional.silu
assert torch.equal(nni.ConvSiLU2d(conv, nn.SiLU())(x), silu(conv(x)))
assert torch.equal(nni.ConvAddSiLU2d(conv, torch.add, nn.SiLU())(x, y), silu(conv(x) + y))
fused = nni.ConvBnSiLU2d(conv, bn.eval(), nn.SiLU())
assert torch.allclose(fused.eval()(x), silu(bn(conv(x))))
for wrong in (lambda: nni.ConvSiLU2d(conv, nn.ReLU()), lambda: nni.ConvBnSiLU2d(conv, nn.SiLU(), bn)):
    try:
        wrong()
    except AssertionError as error:
        assert "expected the modules Conv2d, " in str(error), error
    else:
        raise SystemExit(1)
qconfig = QConfig(activation=MinMaxObserver.with_args(dtype=torch.quint8),
                  weight=FakeQuantize.with_args(observer=MinMaxObserver, dtype=torch.qint8, quant_min=-128,
                                                quant_max=127, qscheme=torch.per_tensor_symmetric))
for made, expected in ((nni.ConvSiLU2d(conv, nn.SiLU()), silu(conv(x))), (fused, silu(bn(conv(x))))):
    for part in made.modules():
        part.qconfig = qconfig
    kind = getattr(nni.qat, type(made).__name__)
    training = kind.from_float(made).eval()
    assert (training(x) - expected).abs().max() < 0.1 and training(x).requires_grad
quantize = lambda t: torch.quantize_per_tensor(t, 8 / 255, 128, torch.quint8)
for device in ("cpu", "musa"):
    module = nni.quantized.ConvSiLU2d(3, 4, 3, padding=1)
    module.set_weight_bias(torch.quantize_per_tensor(conv.weight.detach(), 0.005, 0, torch.qint8), conv.bias.detach())
    module.scale, module.zero_point = 4 / 255, 64
    out = module(quantize(x).to(device))
    assert out.is_quantized and out.device.type == device and abs(out.q_scale() - 4 / 255) < 1e-9
    assert (out.dequantize().cpu() - silu(conv(x))).abs().max() < 0.08
    added = nni.quantized.ConvAddSiLU2d(3, 4, 3, padding=1, padding_mode="reflect")
    added.set_weight_bias(*module._weight_bias()); added.scale, added.zero_point = 8 / 255, 32
    out = added(quantize(x).to(device), quantize(y).to(device))
    mirrored = nn.functional.conv2d(nn.functional.pad(x, (1, 1, 1, 1), mode="reflect"), conv.weight, conv.bias)
    assert (out.dequantize().cpu() - silu(mirrored + y)).abs().max() < 0.12
assert module._get_name() == "QuantizedConvSiLU2d"
"""
    )


# ---- operators ------------------------------------------------------------------------------------------


def test_operators_of_the_vendors_torch(check):
    check(
        """
from torch_musa.core.ops import register_fake_impl as fake
x = torch.randn(2, 3, 8, dtype=torch.float64, device="musa", requires_grad=True)
for weight in (torch.randn(8, dtype=torch.float64, device="musa", requires_grad=True), None):
    out, invvar = torch.ops.aten._fused_rmsnorm_forward(x, [8], 1e-6, weight)
    assert torch.allclose(out, torch.nn.functional.rms_norm(x, (8,), weight, 1e-6)) and invvar.shape == (2, 3)
    grad = torch.randn_like(out)
    inputs = (x,) if weight is None else (x, weight)
    wanted = torch.autograd.grad(out, inputs, grad)
    found = torch.ops.aten._fused_rmsnorm_backward(grad, invvar, x, [8], 1e-6, weight)
    assert all(torch.allclose(a, b) for a, b in zip(wanted, found))
    shapes = fake.fused_rmsnorm_forward(x, [8], 1e-6, weight)
    assert [(t.shape, t.dtype) for t in shapes] == [(t.shape, t.dtype) for t in (out, invvar)]
    shapes = fake.fused_rmsnorm_backward(grad, invvar, x, [8], 1e-6, weight)
    assert [(t.shape, t.dtype) for t in shapes] == [(t.shape, t.dtype) for t in found]
half, inverse = torch.ops.aten._fused_rmsnorm_forward(x.half(), [3, 8], 1e-6)
assert half.dtype == torch.half and inverse.dtype == torch.float32 and inverse.shape == (2,)
out = torch.nn.SwishGLU()(x)
assert torch.equal(out, torch.nn.functional.silu(x[..., :4]) * x[..., 4:])
assert torch.equal(torch.nn.functional.swish_glu(x), out) and torch.equal(torch.ops.aten._fused_swiglu_forward(x), out)
grad = torch.randn_like(out)
assert torch.allclose(torch.autograd.grad(out, x, grad)[0], torch.ops.aten._fused_swiglu_backward(grad, x))
for wrong in (torch.ones(3), torch.ones(())):
    try:
        torch.nn.functional.swish_glu(wrong)
    except RuntimeError as error:
        assert "even size" in str(error), error
    else:
        raise AssertionError
assert not hasattr(torch.nn, "RoPE")                # not simulated
"""
    )


# ---- small tools --------------------------------------------------------------------------------------------


def test_small_tools(check, tmp_path):
    check(
        f"""
import contextlib, io, logging, sys
from torch_musa.utils import logger_util, musa_extension, musify_text, simple_porting
assert logger_util.create_logger() is logger_util.LOGGER and len(logger_util.LOGGER.handlers) == 1
assert logger_util.LOGGER.level == logging.INFO
logger_util.LOGGER.handlers[0].setStream(out := io.StringIO())
logger_util.LOGGER.info("hello"); logger_util.LOGGER.debug("hidden")
assert "[INFO]" in out.getvalue() and out.getvalue().rstrip().endswith("hello")
assert musify_text.is_word_char("_") and not musify_text.is_word_char("-")
assert musify_text.is_word_boundary("a cuda b", 2, 6) and not musify_text.is_word_boundary("a cuda_b", 2, 6)
path = {str(tmp_path / "a.json")!r}
musa_extension._maybe_write(path, '{{"a": 1}}')
before = __import__("os").stat(path).st_mtime_ns
musa_extension._maybe_write(path, '{{"a": 1}}')
assert simple_porting.read_json(path) == {{"a": 1}} and __import__("os").stat(path).st_mtime_ns == before
assert musa_extension._is_musa_file("x.mu") and not musa_extension._is_musa_file("x.cu")
assert musa_extension.MUSA_HOME == "/opt/musa" and musa_extension._join_musa_home("a", "b") == "/opt/musa/a/b"
for refused in (simple_porting.SimplePorting, musify_text.transform_file, lambda: musa_extension.load("x", [])):
    try:
        refused()
    except NotImplementedError as error:
        assert "the simulated device has no" in str(error) and "torch_musa.utils." in str(error), error
    else:
        raise AssertionError(refused)
try:
    torch_musa.utils.no_such_tool
except AttributeError:
    pass
assert {{"compare_tool", "BuildExtension"}} <= set(dir(torch_musa.utils))
""",
        MUSA_HOME="/opt/musa",
    )
