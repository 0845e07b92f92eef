"""Mixed precision."""

import torch
from torch import nn


def autocast_region():
    a = torch.randn(4, 4, device="cuda")
    with torch.autocast("cuda"):
        assert (a @ a).dtype == torch.float16
    assert (a @ a).dtype == torch.float32


def autocast_dtype():
    a = torch.randn(4, 4, device="cuda")
    with torch.autocast(device_type="cuda", dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
        assert torch.get_autocast_dtype("cuda") == torch.bfloat16


def autocast_off():
    a = torch.randn(4, 4, device="cuda")
    with torch.autocast("cuda", enabled=False):
        assert (a @ a).dtype == torch.float32
    with torch.autocast("cuda"), torch.autocast("cuda", enabled=False):
        assert (a @ a).dtype == torch.float32


def autocast_of_the_old_name():
    a = torch.randn(4, 4, device="cuda")
    with torch.cuda.amp.autocast():
        assert (a @ a).dtype == torch.float16
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        assert (a @ a).dtype == torch.bfloat16
    with torch.cuda.amp.autocast(False):
        assert (a @ a).dtype == torch.float32


def autocast_as_decorator():
    @torch.autocast("cuda", dtype=torch.float16)
    def product(a, b):
        return a @ b

    a = torch.randn(4, 4, device="cuda")
    assert product(a, a).dtype == torch.float16


def some_operators_stay_in_float32():
    a = torch.randn(4, 4, device="cuda", dtype=torch.float16)
    with torch.autocast("cuda"):
        assert torch.softmax(a, -1).dtype == torch.float32
        assert torch.exp(a).dtype == torch.float32
        assert torch.nn.functional.mse_loss(a, a).dtype == torch.float32


def widest_type_wins():
    half = torch.ones(2, device="cuda", dtype=torch.float16)
    with torch.autocast("cuda"):
        assert torch.addcmul(half, half, half.float()).dtype == torch.float32


def state_of_autocast():
    assert torch.is_autocast_enabled("cuda") is False
    with torch.autocast("cuda"):
        assert torch.is_autocast_enabled("cuda") is True
        assert torch.is_autocast_enabled() is True
        assert torch.is_autocast_enabled("cpu") is False
    assert torch.amp.is_autocast_available("cuda") is True


def grad_scaler():
    model = nn.Linear(4, 1).cuda()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cuda", init_scale=1024.0)
    before = model.weight.detach().clone()
    with torch.autocast("cuda"):
        loss = model(torch.ones(2, 4, device="cuda")).sum()
    scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    assert not torch.equal(before, model.weight)
    assert scaler.get_scale() == 1024.0


def grad_scaler_skips_infinite_gradients():
    weight = torch.ones(2, device="cuda", requires_grad=True)
    optimizer = torch.optim.SGD([weight], lr=1.0)
    scaler = torch.cuda.amp.GradScaler(init_scale=2.0)
    scaler.scale((weight * float("inf")).sum()).backward()
    scaler.step(optimizer)
    scaler.update()
    assert weight.tolist() == [1.0, 1.0] and scaler.get_scale() == 1.0


def grad_scaler_state():
    scaler = torch.amp.GradScaler(device="cuda", growth_interval=7)
    other = torch.amp.GradScaler("cuda")
    other.load_state_dict(scaler.state_dict())
    assert other.get_growth_interval() == 7
    assert scaler.is_enabled()
    assert not torch.amp.GradScaler("cuda", enabled=False).is_enabled()


def custom_functions():
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx, x):
            ctx.seen = x.dtype
            return x * 2

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx, grad):
            assert not torch.is_autocast_enabled("cuda")
            return grad * 2

    x = torch.ones(2, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Double.apply(x)
    assert y.dtype == torch.float32
    y.sum().backward()
    assert x.grad.tolist() == [2.0, 2.0]


def custom_functions_of_the_old_name():
    class Same(torch.autograd.Function):
        @staticmethod
        @torch.cuda.amp.custom_fwd
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        @torch.cuda.amp.custom_bwd
        def backward(ctx, grad):
            return grad

    x = torch.ones(2, device="cuda", requires_grad=True)
    Same.apply(x).sum().backward()
    assert x.grad.is_cuda


def conversions():
    x = torch.randn(3, device="cuda")
    for dtype in (torch.float16, torch.bfloat16, torch.float64, torch.int32, torch.bool, torch.complex64):
        y = x.to(dtype)
        assert y.is_cuda and y.dtype == dtype
    assert x.half().dtype == torch.float16 and x.bfloat16().float().dtype == torch.float32


def tf32_switches():
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = True
    assert torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = before
    precision = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    assert torch.get_float32_matmul_precision() == "high"
    torch.set_float32_matmul_precision(precision)


def mixed_precision_is_possible():
    from torch.cuda.amp import common

    assert torch.cuda.amp.amp_definitely_not_available() is common.amp_definitely_not_available() is False
