"""Custom operators registered for CUDA: by device type and by dispatch key."""

import inspect
from collections.abc import Iterator
from typing import Any

import pytest
import torch

from torchada.shims.library import KEYS

x = torch.full((2,), 2.0)


@pytest.fixture
def library() -> Iterator[torch.library.Library]:
    """One with operator ``f``, removed at the end; ``name`` is its namespace."""
    made = torch.library.Library("torchada_test_library", "FRAGMENT")
    made.define("f(Tensor x) -> Tensor")
    yield made
    made._destroy()


def f(*args: Any) -> Any:
    return torch.ops.torchada_test_library.f(*args)


def test_kernels_by_device_type() -> None:
    @torch.library.custom_op("torchada_test::where", mutates_args=(), device_types="cpu")
    def where(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @where.register_kernel("cuda")
    def _(x: torch.Tensor) -> torch.Tensor:
        return x + 10

    assert where(x).tolist() == [3.0, 3.0] and where(x.cuda()).tolist() == [12.0, 12.0]
    with where.set_kernel_enabled("cuda", enabled=False):
        assert where(x.cuda()).tolist() == [3.0, 3.0]  # the function the operator was made of
    assert where(x.cuda()).tolist() == [12.0, 12.0]


def test_custom_op_for_cuda_only_and_register_kernel() -> None:
    @torch.library.custom_op("torchada_test::only", mutates_args=(), device_types="cuda")
    def only(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert only(x.cuda()).tolist() == [6.0, 6.0]

    @torch.library.register_kernel("torchada_test::only", "cpu")
    def _(x: torch.Tensor) -> torch.Tensor:
        return x * 4

    assert only(x).tolist() == [8.0, 8.0]


def test_autocast_of_a_custom_op() -> None:
    @torch.library.custom_op("torchada_test::cast", mutates_args=())
    def cast(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    torch.library.register_autocast("torchada_test::cast", "cuda", torch.float16)
    assert cast(x.cuda()).dtype == torch.float32
    with torch.autocast("cuda"):
        assert cast(x.cuda()).dtype == torch.float16


def test_autocast_of_a_library_operator(library: torch.library.Library) -> None:
    library.impl("f", lambda x: x.clone(), "CompositeExplicitAutograd")
    torch.library.register_autocast("torchada_test_library::f", "cuda", torch.float16, lib=library)
    assert f(x.cuda()).dtype == torch.float32
    with torch.autocast("cuda"):
        assert f(x.cuda()).dtype == torch.float16
        assert f(x).dtype == torch.float32  # the CPU has an autocast of its own
    with torch.autocast("cpu"):
        assert f(x.cuda()).dtype == torch.float32


def test_autocast_kernels_go_on_below_autocast(library: torch.library.Library) -> None:
    """The usual autocast kernel: its own key, among others, is left out while it calls the operator again."""
    below = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA) | torch._C.DispatchKeySet(
        torch._C.DispatchKey.AutocastCPU
    )

    def kernel(x: torch.Tensor) -> torch.Tensor:
        with torch._C._ExcludeDispatchKeyGuard(below):
            return f(x.half())

    library.impl("f", lambda x: x * 2, "CompositeExplicitAutograd")
    for key in ("AutocastCUDA", "AutocastCPU"):
        library.impl("f", kernel, key)
    with torch.autocast("cuda"):
        assert f(x.cuda()).dtype == torch.float16 and f(x).dtype == torch.float32
        assert (x.cuda() @ x.cuda()).dtype == torch.float16  # the guard is over
    assert f(x.cuda()).dtype == torch.float32
    with pytest.raises(TypeError, match="DispatchKeySet"):
        torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKey.AutocastCUDA)  # type: ignore[arg-type]


def test_keys_of_the_thread() -> None:
    key, c = torch._C.DispatchKey.AutocastCUDA, torch._C
    assert c._dispatch_tls_is_dispatch_key_excluded(key) and not c._dispatch_tls_is_dispatch_key_included(key)
    with torch.autocast("cuda"):
        assert not c._dispatch_tls_is_dispatch_key_excluded(key)
        with c._SetExcludeDispatchKeyGuard(key, True):
            assert (x.cuda() @ x.cuda()).dtype == torch.float32
        c._dispatch_tls_set_dispatch_key_excluded(key, True)
        assert (x.cuda() @ x.cuda()).dtype == torch.float32
        c._dispatch_tls_set_dispatch_key_excluded(key, False)
        assert (x.cuda() @ x.cuda()).dtype == torch.float16
    with c._IncludeDispatchKeyGuard(key):
        assert c._dispatch_tls_is_dispatch_key_included(key)
    c._dispatch_tls_set_dispatch_key_included(key, True)
    assert c._dispatch_tls_local_include_set().has(c.DispatchKey.AutocastPrivateUse1)
    c._dispatch_tls_set_dispatch_key_included(key, False)
    with pytest.raises(TypeError, match="incompatible function arguments"):
        c._dispatch_tls_is_dispatch_key_excluded(k=key)  # type: ignore[call-arg]


def test_device_annotation() -> None:
    @torch.library.custom_op("torchada_test::make", mutates_args=())
    def make(n: int, device: torch.device) -> torch.Tensor:
        return torch.zeros(n, device=device)

    assert make(2, torch.device("cuda:1")).device == torch.device("cuda:1")


def test_dispatch_key() -> None:
    assert torch._C._dispatch_key_for_device("cuda") == "PrivateUse1"


@pytest.mark.parametrize("key", ["CUDA", "cuda"])
def test_library_kernels_by_dispatch_key(key: str) -> None:
    library = torch.library.Library("torchada_test_keys", "DEF")
    try:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        torch.library.impl("torchada_test_keys::f", key, lambda x: x + 10, lib=library)
        assert torch.ops.torchada_test_keys.f(x.cuda()).tolist() == [12.0, 12.0]
        assert torch.ops.torchada_test_keys.f(x).tolist() == [3.0, 3.0]
    finally:
        library._destroy()


def test_libraries_made_for_a_dispatch_key() -> None:
    definition = torch.library.Library("torchada_test_made", "DEF")
    forward = torch.library.Library("torchada_test_made", "IMPL", "CUDA")
    backward = torch.library.Library("torchada_test_made", "IMPL", "AutogradCUDA")
    try:
        definition.define("f(Tensor x) -> Tensor")
        forward.impl("f", lambda x: x + 10)
        assert torch.ops.torchada_test_made.f(x.cuda()).tolist() == [12.0, 12.0]
        backward.impl("f", lambda x: x + 20)
        assert torch.ops.torchada_test_made.f(x.cuda()).tolist() == [22.0, 22.0]
        assert forward.dispatch_key == "CUDA"
    finally:
        for library in (backward, forward, definition):
            library._destroy()


@pytest.mark.parametrize("kinds", ["cuda", ("cpu", "cuda"), ["cuda", "cpu"]], ids=str)
def test_kernel_chosen_by_a_device_argument(kinds: Any) -> None:
    name = f"torchada_test::place_{'_'.join([kinds] if isinstance(kinds, str) else kinds)}"

    @torch.library.custom_op(name, mutates_args=(), device_types=kinds)
    def place(n: int, device: torch.device) -> torch.Tensor:
        return torch.ones(n, device=device)

    assert "Device device" in str(place._opoverload._schema)
    assert place(2, "cuda").is_cuda and place(2, torch.device("cuda:1")).device.index == 1
    assert torch.ops.torchada_test.__getattr__(name.split("::")[1])(2, torch.device("cuda", 1)).device.index == 1
    if kinds == "cuda":
        with pytest.raises(RuntimeError, match="does not have a kernel registered for cpu"):
            place(2, "cpu")
        try:
            place.register_kernel("cpu")(lambda n, device: torch.zeros(n))
        except RuntimeError as error:  # an older torch cannot add one, on CUDA either
            assert "BackendSelect" in str(error)
            return
    assert place(2, "cpu").device.type == "cpu" and place(1, "cuda").tolist() == [1.0]


def test_infer_schema_and_defaults() -> None:
    def make(x: torch.Tensor, device: torch.device | None = None, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        return x.to(device or "cpu", dtype)

    schema = torch.library.infer_schema(make, mutates_args=())
    assert schema == "(Tensor x, Device? device=None, ScalarType dtype=float32) -> Tensor"
    torch.library.define("torchada_test::moved", schema)
    torch.library.impl("torchada_test::moved", ("cpu", "cuda"))(make)
    moved = torch.ops.torchada_test.moved
    assert moved(x, torch.device("cuda:1")).device.index == 1 and moved(x.cuda()).device.type == "cpu"
    assert moved(x.cuda(), device="cuda", dtype=torch.float16).dtype == torch.float16


@pytest.mark.parametrize("register", ["impl", "register_kernel"])
def test_device_types_of_plain_operators(register: str, library: torch.library.Library) -> None:
    function, name = getattr(torch.library, register), "torchada_test_library::f"
    function(name, ("cpu", "cuda"), lambda x: x + 1, lib=library)
    assert f(x).tolist() == f(x.cuda()).tolist() == [3.0, 3.0] and f(x.cuda()).is_cuda
    with pytest.raises(RuntimeError, match=r"(?i)expected one of.*device type"):
        function(name, "cudas", lambda x: x, lib=library)
    with pytest.raises((RuntimeError, TypeError, ValueError)):
        function(name, ["cuda", 3], lambda x: x, lib=library)


def test_no_device_type_is_every_device(library: torch.library.Library) -> None:
    torch.library.register_kernel("torchada_test_library::f", None, lambda x: x + 1, lib=library)
    assert f(x).tolist() == f(x.cuda()).tolist() == [3.0, 3.0]

    @torch.library.custom_op("torchada_test::every", mutates_args=(), device_types=None)
    def every(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    assert every(x.cuda()).is_cuda and every(x).tolist() == [3.0, 3.0]


def _inputs(key: str) -> Any:
    """A tensor that reaches a kernel of *key*."""
    tensor = torch.tensor([[1.0, 2.0], [3.0, 0.0]], device="cuda")
    if key == "SparseCUDA":
        return tensor.to_sparse()
    if key == "SparseCsrCUDA":
        return tensor.to_sparse_csr()
    if key == "QuantizedCUDA":
        return torch.quantize_per_tensor(tensor.cpu(), 0.1, 0, torch.qint8).cuda()
    if key == "NestedTensorCUDA":
        return torch.nested.nested_tensor([torch.ones(2), torch.ones(3)], device="cuda")
    return tensor.requires_grad_() if key == "AutogradCUDA" else tensor


@pytest.mark.parametrize("key", KEYS)
def test_every_key_of_cuda(key: str, library: torch.library.Library) -> None:
    seen: list[str] = []

    def kernel(keyset: Any, x: torch.Tensor) -> torch.Tensor:
        assert isinstance(keyset, torch._C.DispatchKeySet) and keyset.has(getattr(torch._C.DispatchKey, KEYS[key]))
        seen.append(key)
        return torch.ones(1)

    library.impl("f", lambda x: torch.zeros(1), "CompositeExplicitAutograd")
    library.impl("f", kernel, key, with_keyset=True)
    library.impl("f", torch.library.fallthrough_kernel, "AutogradNestedTensor")
    given = _inputs(key)
    with torch.autocast("cuda", enabled=key == "AutocastCUDA"):
        assert f(given).item() == 1.0 and seen == [key]
    assert f(x).item() == 0.0 and len(seen) == 1


@pytest.mark.skipif(
    "allow_override" not in inspect.signature(torch.library.Library.impl).parameters, reason="not in this torch"
)
def test_override(library: torch.library.Library, recwarn: Any) -> None:
    library.impl("f", lambda x: x + 1, "CUDA")
    with pytest.raises(RuntimeError, match="already a kernel registered"):
        library.impl("f", lambda x: x + 2, "CUDA", allow_override=False)
    assert f(x.cuda()).tolist() == [3.0, 3.0]
    library.impl("f", lambda x: x + 2, "CUDA", allow_override=True)
    assert f(x.cuda()).tolist() == [4.0, 4.0]


def test_a_library_goes_and_takes_its_kernels_along(library: torch.library.Library) -> None:
    library.impl("f", lambda x: x + 1, "CompositeExplicitAutograd")
    one, other = (torch.library.Library("torchada_test_library", "IMPL", key) for key in ("CUDA", "AutogradCUDA"))
    one.impl("f", lambda x: x + 10)
    other.impl("f", lambda x: x + 20)
    wanting = x.cuda().requires_grad_()
    assert f(wanting).tolist() == [22.0, 22.0]
    other._destroy()
    assert f(wanting).tolist() == [12.0, 12.0]
    del one
    assert f(wanting).tolist() == [3.0, 3.0]
    with torch.library._scoped_library("torchada_test_library", "IMPL") as third:
        third.impl("f", lambda x: x + 30, "CUDA")
        assert f(x.cuda()).tolist() == [32.0, 32.0]
    assert f(x.cuda()).tolist() == [3.0, 3.0]


def test_override_of_an_operator_of_torch() -> None:
    """A library of faster kernels: those it registers for CUDA are used, and only there."""
    with torch.library._scoped_library("aten", "IMPL") as ours:
        ours.impl("silu", lambda x: x * 100, "CUDA")
        assert torch.nn.functional.silu(x.cuda()).tolist() == [200.0, 200.0]
        assert torch.nn.functional.silu(x).tolist() != [200.0, 200.0]
    assert torch.nn.functional.silu(x.cuda()).tolist() != [200.0, 200.0]
    with torch.library._scoped_library("aten", "IMPL", "CUDA") as ours:
        ours.impl("silu", torch.nn.functional.relu)  # a function of torch as the kernel
        assert torch.nn.functional.silu(-x.cuda()).tolist() == [0.0, 0.0]


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.parametrize("kinds", ["cuda", ("cpu", "cuda")], ids=str)
def test_the_older_interface(kinds: Any) -> None:
    """``torch._custom_ops``, with which operators were made before ``torch.library.custom_op``."""
    import torch._custom_ops as old

    def made(name: str) -> Any:
        def body(x: torch.Tensor) -> torch.Tensor:
            raise NotImplementedError

        body.__name__ = f"{name}{len(kinds)}"
        old.custom_op(f"torchada_old::{body.__name__}")(body)
        return getattr(torch.ops.torchada_old, body.__name__)

    twice, taken = made("twice"), made("taken")
    old.impl(f"torchada_old::{twice.__name__}", device_types=kinds)(lambda x: x * 2)
    assert twice(torch.ones(2, device="cuda")).tolist() == [2, 2]

    library_of_it = torch.library.Library("torchada_old", "FRAGMENT")
    library_of_it.impl(taken.__name__, lambda x: x, "CUDA")
    with pytest.raises(RuntimeError, match="already has an implementation"):
        old.impl(f"torchada_old::{taken.__name__}", device_types="cuda")(lambda x: x * 2)
    library_of_it._destroy()


def test_what_torch_registers_for_cuda_is_left_alone() -> None:
    import torch.distributed.fsdp  # registers its operators for each device, CUDA and PrivateUse1 among them

    for key in ("CUDA", "PrivateUse1"):
        assert torch._C._dispatch_has_kernel_for_dispatch_key("fsdp::chunk_cat", key)


@pytest.mark.parametrize("key", ["CUDA", "NestedTensorCUDA", "AutocastCUDA"])
def test_fallback_of_a_key(key: str) -> None:
    """The backend has one for each of its keys, and torch allows no second."""
    with torch.library._scoped_library("_", "IMPL") as everything:
        with pytest.raises(RuntimeError, match=f"multiple backend fallbacks for the same dispatch key {KEYS[key]};"):
            everything.fallback(lambda op, *args, **kwargs: None, key)


@pytest.mark.skipif(not hasattr(torch.library, "get_kernel"), reason="torch 2.9 and later")
def test_a_kernel_is_handed_out_and_replaced() -> None:
    for key in ("CUDA", torch._C.DispatchKey.CUDA):
        kernel = torch.library.get_kernel("aten::sin", key)
        with torch.library._scoped_library("aten", "IMPL") as ours:
            ours.impl("sin", lambda keys, x, kernel=kernel: kernel.call_boxed(keys, x) + 1, "CUDA", with_keyset=True)
            torch.testing.assert_close(x.cuda().sin().cpu(), x.sin() + 1)
    with pytest.raises(ValueError, match="Invalid dispatch key"):
        torch.library.get_kernel("aten::sin", "CUDAs")


@torch.library.custom_op("torchada_test::cube", mutates_args=(), device_types=("cpu", "cuda"))
def cube(x: torch.Tensor) -> torch.Tensor:
    return x * x * x


cube.register_fake(torch.empty_like)
cube.register_autograd(
    lambda ctx, grad: grad * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs),
)


@cube.register_vmap
def _(info: Any, in_dims: Any, x: torch.Tensor) -> Any:
    return torch.ops.torchada_test.cube(x), in_dims[0]


def test_opcheck() -> None:
    given = torch.randn(3, device="cuda", requires_grad=True)
    done = torch.library.opcheck(cube, (given,))
    assert set(done.values()) == {"SUCCESS"} and "test_autograd_registration" in done
    with torch.library._scoped_library("torchada_test_bad", "FRAGMENT") as bad:
        bad.define("f(Tensor x) -> Tensor")
        bad.impl("f", lambda x: Through.apply(x), "CUDA")
        with pytest.raises(Exception, match="does not have an autograd kernel"):
            torch.library.opcheck(
                torch.ops.torchada_test_bad.f.default, (given,), test_utils="test_autograd_registration"
            )
        bad.impl("f", lambda x: Through.apply(x), "AutogradCUDA")
        torch.library.opcheck(torch.ops.torchada_test_bad.f.default, (given,), test_utils="test_autograd_registration")


class Through(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x.detach().clone()

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        return grad


@pytest.mark.parametrize("backend", ["aot_eager"])
def test_gradients_transforms_and_compilation(backend: str) -> None:
    given = torch.full((3,), 2.0, device="cuda", requires_grad=True)
    compiled = torch.compile(lambda x: cube(x) + torch.ones(3, device="cuda"), backend=backend, fullgraph=True)
    compiled(given).sum().backward()
    assert given.grad is not None and given.grad.tolist() == [12.0] * 3 and given.grad.is_cuda
    assert torch.vmap(cube)(torch.ones(2, 3, device="cuda")).tolist() == [[1.0] * 3] * 2


def test_triton_op_and_torch_dispatch() -> None:
    @torch.library.triton_op("torchada_test::shifted", mutates_args=())
    def shifted(x: torch.Tensor) -> torch.Tensor:
        return x.cuda() + torch.ones(2, device="cuda")

    assert shifted(x).tolist() == [3.0, 3.0] and shifted(x).is_cuda
    compiled = torch.compile(lambda x: shifted(x) * 2, backend="aot_eager", fullgraph=True)
    assert compiled(x.cuda()).tolist() == [6.0, 6.0]

    class Mode(torch.utils._python_dispatch.TorchDispatchMode):
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            return func(*args, **(kwargs or {}))

    @torch.library.register_torch_dispatch("torchada_test::cube", Mode)
    def _(mode: Any, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        return args[0] * 0

    with Mode():
        assert cube(x.cuda()).tolist() == [0.0, 0.0]
    assert cube(x.cuda()).tolist() == [8.0, 8.0]


def test_registered_before_activation(run_python: Any) -> None:
    """torch and the operators first; a kernel for CUDA is the device's all the same."""
    done = run_python(
        """
        import torch
        @torch.library.custom_op("late::op", mutates_args=(), device_types="cpu")
        def op(x: torch.Tensor) -> torch.Tensor:
            return x + 1
        @op.register_kernel("cuda")
        def _(x):
            return x + 10
        library = torch.library.Library("late_library", "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.define("g(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        library.impl("f", lambda x: x + 10, "CUDA")
        library.impl("g", lambda x: x + 20, "AutogradCUDA")
        import torch.distributed.fsdp
        import torchada
        x = torch.ones(2, device="cuda")
        assert op(x).tolist() == [11.0] * 2 and op(x.cpu()).tolist() == [2.0] * 2
        with op.set_kernel_enabled("cuda", enabled=False):
            assert op(x).tolist() == [2.0] * 2
        if hasattr(torch.library, "get_kernel"):
            f, g = torch.ops.late_library.f, torch.ops.late_library.g
            assert f(x).tolist() == [11.0] * 2 and f(x.cpu()).tolist() == [2.0] * 2 and g(x).tolist() == [21.0] * 2
            assert f(x.requires_grad_()).tolist() == [11.0] * 2
            torchada.deactivate()
            assert f(torch.ones(2)).tolist() == [2.0] * 2
        """,
    )
    if hasattr(torch.library, "get_kernel"):
        assert "lost on the MUSA device" not in done.stderr
    else:
        assert "late_library/f/CUDA" in done.stderr and "fsdp" not in done.stderr


def test_registered_while_active_stays_after(run_python: Any) -> None:
    run_python(
        """
        import torchada, torch
        library = torch.library.Library("kept", "DEF")
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 10, "CUDA")
        torchada.deactivate()
        assert torch.ops.kept.f(torch.ones(2, device="musa")).tolist() == [11.0] * 2
        library.impl("f", lambda x: x + 20, "CUDA")  # torch's own meaning again
        assert torch.ops.kept.f(torch.ones(2, device="musa")).tolist() == [11.0] * 2
        """
    )
