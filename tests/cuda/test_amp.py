"""torch.cuda.amp on MUSA, although torch.cuda.is_available() says False."""

import inspect
import warnings

import pytest
import torch

from torchada.engine import ENGINE


def model_and_data():
    torch.manual_seed(0)
    return torch.nn.Linear(8, 4).cuda(), torch.randn(16, 8, device="cuda")


def test_amp_is_available():
    assert torch.cuda.amp.common.amp_definitely_not_available() is False
    assert torch.cuda.amp.amp_definitely_not_available() is False


def test_classes_are_torchs_own():
    native = ENGINE.virtuals["torch.cuda.amp.autocast_mode"].native
    assert torch.cuda.amp.autocast is torch.cuda.amp.autocast_mode.autocast is native.autocast
    assert issubclass(torch.cuda.amp.autocast, torch.autocast)
    assert issubclass(torch.cuda.amp.GradScaler, torch.amp.GradScaler)
    assert torch.cuda.amp.GradScaler is torch.cuda.amp.grad_scaler.GradScaler
    assert torch.cuda.amp.custom_fwd is native.custom_fwd
    assert list(inspect.signature(torch.cuda.amp.GradScaler.__init__).parameters)[1] == "init_scale"


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.cuda.amp.autocast(),
        lambda: torch.cuda.amp.GradScaler(),
        lambda: torch.cuda.amp.custom_fwd(lambda ctx, x: x),
        lambda: torch.cuda.amp.custom_bwd(lambda ctx, x: x),
    ],
)
def test_deprecation_warnings_blame_the_caller(make):
    with pytest.warns(FutureWarning, match=r"torch\.cuda\.amp.*deprecated") as caught:
        make()
    assert [warning.filename for warning in caught] == [__file__]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_autocast():
    model, x = model_and_data()
    with torch.cuda.amp.autocast():
        assert model(x).dtype is torch.float16
        with torch.cuda.amp.autocast(enabled=False):
            assert model(x).dtype is torch.float32
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        assert model(x).dtype is torch.bfloat16
    assert model(x).dtype is torch.float32

    @torch.cuda.amp.autocast()
    def forward(x):
        return model(x)

    assert forward(x).dtype is torch.float16


def test_autocast_is_not_disabled():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.autocast("cuda"):
            assert torch.is_autocast_enabled("cuda")
            assert (torch.ones(2, 2, device="cuda") @ torch.ones(2, 2, device="cuda")).dtype is torch.float16


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize("make", [lambda: torch.cuda.amp.GradScaler(), lambda: torch.amp.GradScaler("cuda")])
def test_grad_scaler_trains(make):
    model, x = model_and_data()
    scaler = make()
    assert scaler.is_enabled() and scaler.get_scale() == 2.0**16
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    losses = []
    for _ in range(12):
        optimizer.zero_grad()
        with torch.autocast("cuda", dtype=torch.float16):
            loss = model(x).float().pow(2).mean()
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_grad_scaler_skips_a_step_with_infinite_gradients():
    model, x = model_and_data()
    scaler = torch.cuda.amp.GradScaler(init_scale=4.0, growth_interval=1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.weight.detach().clone()
    scaler.scale((model(x) * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert torch.equal(model.weight, before)
    assert scaler.get_scale() == 2.0
    state = scaler.state_dict()
    other = torch.cuda.amp.GradScaler()
    other.load_state_dict(state)
    assert other.get_scale() == 2.0


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_classes_can_be_subclassed():
    class Scaler(torch.cuda.amp.GradScaler):
        def __init__(self):
            super().__init__(init_scale=8.0)

    class Cast(torch.cuda.amp.autocast):
        pass

    assert Scaler().get_scale() == 8.0
    model, x = model_and_data()
    with Cast():
        assert model(x).dtype is torch.float16


@pytest.mark.filterwarnings("ignore::FutureWarning")
@pytest.mark.parametrize(
    "fwd,bwd",
    [
        (torch.cuda.amp.custom_fwd, torch.cuda.amp.custom_bwd),
        (torch.amp.custom_fwd(device_type="cuda"), torch.amp.custom_bwd(device_type="cuda")),
    ],
)
def test_custom_functions(fwd, bwd):
    seen = {}

    class Product(torch.autograd.Function):
        @staticmethod
        @fwd
        def forward(ctx, a, b):
            ctx.save_for_backward(a, b)
            seen["forward"] = torch.is_autocast_enabled("cuda")
            return a @ b

        @staticmethod
        @bwd
        def backward(ctx, grad):
            a, b = ctx.saved_tensors
            seen["backward"] = torch.is_autocast_enabled("cuda")
            return grad @ b.t(), a.t() @ grad

    a = torch.ones(3, 3, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        out = Product.apply(a, torch.ones(3, 3, device="cuda"))
    out.float().sum().backward()
    assert seen == {"forward": True, "backward": True}
    assert a.grad.dtype is torch.float32


@pytest.mark.filterwarnings("ignore::FutureWarning")
def test_custom_fwd_casts_inputs():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx, x):
            return x * 2

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, grad):
            return grad * 2

    with torch.autocast("cuda"):
        assert Double.apply(torch.ones(2, device="cuda", dtype=torch.float16)).dtype is torch.float32
