"""Autocast and gradient scaling in their generic form."""

import warnings
from typing import Any

import pytest
import torch


@pytest.fixture(autouse=True)
def _state() -> Any:
    before = torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")
    yield
    assert (torch.is_autocast_enabled("cuda"), torch.get_autocast_dtype("cuda")) == before


def _product() -> torch.dtype:
    x = torch.ones(2, 2, device="cuda")
    return (x @ x).dtype


@pytest.mark.parametrize(
    "make",
    [
        lambda: torch.autocast("cuda"),
        lambda: torch.autocast(device_type="cuda"),
        lambda: torch.amp.autocast("cuda", torch.float16, True, True),
        lambda: torch.amp.autocast(device_type="cuda", dtype=torch.float16),
        lambda: torch.autocast("cuda", enabled=True),
    ],
)
def test_autocast(make: Any) -> None:
    assert _product() == torch.float32
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        context = make()
    with context:
        assert _product() == torch.float16
        assert torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled()
        with torch.autocast("cuda", enabled=False):
            assert _product() == torch.float32
    assert not torch.is_autocast_enabled()


def test_autocast_dtypes_and_default() -> None:
    assert torch.get_autocast_dtype("cuda") == torch.float16
    with torch.autocast("cuda", torch.bfloat16):
        assert _product() == torch.bfloat16
        assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.bfloat16


def test_autocast_as_decorator_and_class() -> None:
    @torch.autocast("cuda")
    def run() -> torch.dtype:
        return _product()

    assert run() == torch.float16 and run.__name__ == "run"
    assert isinstance(torch.autocast("cuda"), torch.autocast) and torch.autocast is torch.amp.autocast

    class Mine(torch.autocast):
        def __init__(self) -> None:
            super().__init__("cuda")

    with Mine():
        assert _product() == torch.float16


def test_device_attribute_reads_as_tensors_do() -> None:
    assert torch.autocast("cuda").device == torch.ones(1).cuda().device.type == "musa"
    assert torch.autocast("cpu").device == "cpu"


def test_autocast_errors() -> None:
    with pytest.raises(ValueError, match="type `str`"):
        torch.autocast(torch.device("cuda"))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError):
        torch.autocast("cudax")
    with pytest.warns(UserWarning, match="not supported"):
        context = torch.autocast("cuda", torch.int32)
    with context:
        assert _product() == torch.float32


def test_state_functions() -> None:
    assert torch.is_autocast_enabled is torch._C.is_autocast_enabled
    assert torch.set_autocast_enabled is torch._C.set_autocast_enabled
    assert torch.amp.is_autocast_available("cuda")
    assert torch._C._is_autocast_available(device_type="cuda")
    try:
        torch.set_autocast_enabled("cuda", True)
        assert (
            torch.is_autocast_enabled("cuda") and torch.is_autocast_enabled() and not torch.is_autocast_enabled("cpu")
        )
        torch.set_autocast_enabled(False)
        assert not torch.is_autocast_enabled("cuda")
        torch.set_autocast_dtype("cuda", torch.bfloat16)
        assert torch.get_autocast_dtype("cuda") == torch.get_autocast_gpu_dtype() == torch.bfloat16
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            torch.set_autocast_gpu_dtype(torch.float16)
        assert torch.get_autocast_dtype("cuda") == torch.float16
        with pytest.raises(TypeError):
            torch.set_autocast_gpu_dtype("half")  # type: ignore[arg-type]
    finally:
        torch.set_autocast_enabled("cuda", False)
        torch.set_autocast_dtype("cuda", torch.float16)


def test_deprecations_blame_the_caller() -> None:
    for call in (torch.get_autocast_gpu_dtype, lambda: torch.set_autocast_gpu_dtype(torch.float16)):
        with pytest.warns(DeprecationWarning, match=r"autocast_dtype\('cuda'") as caught:
            call()
        assert [warning.filename for warning in caught] == [__file__]


def test_custom_function() -> None:
    class Square(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            ctx.save_for_backward(x)
            seen.append((x.dtype, torch.is_autocast_enabled("cuda")))
            return x * x

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            (x,) = ctx.saved_tensors
            return 2 * x * grad

    seen: list[Any] = []
    x = torch.full((2,), 3.0, device="cuda", dtype=torch.float16, requires_grad=True)
    with torch.autocast("cuda"):
        y = Square.apply(x)
    y.sum().backward()
    assert seen == [(torch.float32, False)] and x.grad is not None and x.grad.tolist() == [6.0, 6.0]


@pytest.mark.parametrize("make", [torch.amp.GradScaler, lambda: torch.amp.GradScaler("cuda"),
                                  lambda: torch.amp.GradScaler(device="cuda", init_scale=4.0)])  # fmt: skip
def test_grad_scaler(make: Any) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        scaler = make()
    assert isinstance(scaler, torch.amp.GradScaler) and scaler.is_enabled()
    module = torch.nn.Linear(2, 1).cuda()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1)
    with torch.autocast("cuda"):
        loss = module(torch.ones(1, 2, device="cuda")).sum()
    scaled = scaler.scale(loss)
    assert scaled.is_cuda and scaled.item() == pytest.approx(loss.item() * scaler.get_scale(), rel=1e-2)
    scaled.backward()
    scaler.step(optimizer)
    scaler.update()
    state = scaler.state_dict()
    other = torch.amp.GradScaler("cuda")
    other.load_state_dict(state)
    assert other.get_scale() == state["scale"]


def test_checkpoint_keeps_autocast_and_rng() -> None:
    def block(x: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.dropout(x @ x, 0.5)

    x = torch.ones(8, 8, device="cuda", requires_grad=True)
    with torch.autocast("cuda"):
        y = torch.utils.checkpoint.checkpoint(block, x, use_reentrant=False)
    assert y.dtype == torch.float16
    y.sum().backward()
    assert x.grad is not None and x.grad.is_cuda
