"""Operators in Python, under autocast and with kernels for CUDA; random numbers of compiled programs."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch._functorch.config
from torch._C import DispatchKey
from torch._higher_order_ops import associative_scan, scan, while_loop
from torch.utils.checkpoint import checkpoint

from torchada.shims.library import KEYS


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    torch.cuda.manual_seed(5)
    yield
    torch._dynamo.reset()


@pytest.fixture
def x() -> torch.Tensor:
    return torch.linspace(-1, 1, 64, device="cuda").reshape(8, 8).requires_grad_()


def compiled(function: Callable[..., Any]) -> Callable[..., Any]:
    return torch.compile(function, backend="aot_eager", fullgraph=True)  # type: ignore[no-any-return]


def branch(x: torch.Tensor) -> Any:
    return torch.cond(x.sum() > 0, lambda x: (x @ x).sin(), lambda x: (x @ x).cos(), (x,))


def loop(x: torch.Tensor) -> Any:
    start = (torch.zeros((), dtype=torch.int64, device="cuda"), x.detach())
    return while_loop(lambda i, x: i < 3, lambda i, x: (i + 1, x.sin()), start)[1]


def running(x: torch.Tensor) -> Any:
    return scan(lambda carry, y: (carry + y, carry * y), x[0].detach(), x.detach())[1]


def prefix(x: torch.Tensor) -> Any:
    return associative_scan(torch.add, x.detach(), 0, combine_mode="generic")


@getattr(torch.compiler, "nested_compile_region", lambda function: function)  # before torch 2.8 a function as others
def nested(x: torch.Tensor) -> Any:
    return (x @ x).sin()


def region(x: torch.Tensor) -> Any:
    return nested(nested(x))


@pytest.mark.parametrize("program", [branch, loop, running, prefix, region])
@pytest.mark.parametrize("inside", [True, False], ids=["region inside", "region around"])
def test_autocast_passes_higher_order_operators(program: Any, inside: bool, x: torch.Tensor) -> None:
    def under(function: Callable[..., Any], x: torch.Tensor, dtype: torch.dtype = torch.bfloat16) -> Any:
        with torch.autocast(x.device.type, dtype):
            return function(x)

    if program is region and inside:
        host = x.detach().cpu().requires_grad_()
        if compiled(lambda x: under(region, x, torch.float16))(host).dtype == torch.bfloat16:
            pytest.skip("this torch traces a region with gradients in the default type of autocast, on the CPU too")
        torch._dynamo.reset()
    found = compiled(lambda x: under(program, x))(x) if inside else under(compiled(program), x)
    torch._dynamo.reset()
    wanted = compiled(lambda x: under(program, x))(x.detach().cpu())
    assert found.dtype == wanted.dtype
    torch.testing.assert_close(found.cpu(), wanted, atol=1e-2, rtol=1e-2)


class Named(torch._ops.HigherOrderOperator):
    """An operator without derivatives."""

    def __init__(self, name: str) -> None:
        super().__init__(f"torchada_test_{name}")
        self.fallthrough(DispatchKey.AutogradPrivateUse1)

    def __call__(self, *args: Any) -> Any:
        return super().__call__(*args)  # type: ignore[misc]


@pytest.mark.parametrize("key", ["CUDA", "AutogradCUDA"])
def test_python_kernels(key: str) -> None:
    operator = Named(key)
    operator.py_impl(getattr(DispatchKey, key))(lambda x: (key, x.device.type))
    assert operator(torch.ones(1, device="cuda")) == (key, "musa")
    with pytest.raises(RuntimeError, match="overrid"):  # as torch says of a second kernel
        operator.py_impl(getattr(DispatchKey, key))(lambda x: x)


def test_autocast_passes_an_operator_made_later() -> None:
    operator = Named("later")
    operator.py_impl(DispatchKey.CompositeExplicitAutograd)(lambda x: x)
    with torch.autocast("cuda", torch.bfloat16):
        assert operator(torch.ones(1, device="cuda")).dtype == torch.float32


def test_a_kernel_of_autocast_goes_on_below_it() -> None:
    operator = Named("cast")

    @operator.py_impl(DispatchKey.AutocastCUDA)
    def cast(x: torch.Tensor) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(DispatchKey.AutocastCUDA)):
            return operator(x.to(torch.get_autocast_dtype("cuda")))

    operator.py_impl(DispatchKey.CompositeExplicitAutograd)(lambda x: x)
    x = torch.ones(1, device="cuda")
    with torch.autocast("cuda", torch.bfloat16):
        assert operator(x).dtype == torch.bfloat16
    assert operator(x).dtype == torch.float32


def test_a_kernel_of_an_overload(x: torch.Tensor) -> None:
    """Known to the Python dispatcher only, as on CUDA."""
    with torch.library._scoped_library("torchada_test_overload", "FRAGMENT") as library:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "PrivateUse1")
        operator = torch.ops.torchada_test_overload.f.default
        operator.py_impl(DispatchKey.CUDA)(lambda x: x + 2)
        assert operator.has_kernel_for_dispatch_key(DispatchKey.PrivateUse1)
        assert set(operator.py_kernels) <= {getattr(DispatchKey, key) for pair in KEYS.items() for key in pair}
        with torch._dispatch.python.enable_python_dispatcher(), torch.no_grad():
            assert torch.equal(operator(x), x + 2)


def dropped(x: torch.Tensor) -> Any:
    return checkpoint(lambda x: torch.dropout(x, 0.5, True) + torch.dropout(3 * x, 0.5, True), x, use_reentrant=False)


@pytest.mark.parametrize("functional", [False, True])
def test_dropout_in_a_compiled_checkpoint(functional: bool) -> None:
    """What is dropped in the forward is dropped in the recomputation."""
    x = torch.ones(64, device="cuda", requires_grad=True)
    with torch._functorch.config.patch(functionalize_rng_ops=functional):
        program = compiled(dropped)
        outcomes = [program(x) for _ in range(2)]
        for out in outcomes:
            (gradient,) = torch.autograd.grad(out.sum(), x)
            assert torch.equal(gradient, out.detach()) and {0.0, 8.0} < set(out.tolist())
    assert not torch.equal(*outcomes)


def test_functional_random_numbers() -> None:
    x = torch.ones(64, device="cuda", requires_grad=True)
    with torch._functorch.config.patch(functionalize_rng_ops=True):
        program = compiled(lambda x: torch.rand_like(x) * x + torch.rand(64, device="cuda") * x)
        torch.cuda.manual_seed(7)
        before = torch.cuda._get_rng_state_offset()
        first, second = program(x), program(x)
        assert torch.cuda._get_rng_state_offset() > before
        assert torch.equal(torch.autograd.grad(first.sum(), x)[0], first.detach())
        torch.cuda.manual_seed(7)
        assert torch.equal(program(x), first) and not torch.equal(first, second)
        assert first.min() > 0 and first.max() < 2
        with pytest.raises(Exception, match="functionalize a cpu RNG operator"):
            compiled(lambda x: torch.rand_like(x))(torch.ones(2))
