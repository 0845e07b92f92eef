"""Operators that torch_musa lacks, computes wrongly, or makes the host wait for, as torchada answers them."""

import importlib
import json
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from packaging.version import Version

from torchada.gates import Facts
from torchada.shims import ops
from torchada.simulator import counters
from torchada.simulator.profiles import PROFILES
from torchada.tables.ops import CLUTTER, COMPILED, FINITE, HEURISTICS, LOG, PRODUCTS, RULES, SUMS

INF, NAN = float("inf"), float("nan")
HALVES = [torch.float16, torch.bfloat16]
OUT_DTYPE = "dtype" in torch.ops.aten.mm.overloads()
needs_out_dtype = pytest.mark.skipif(not OUT_DTYPE, reason="torch.mm of this torch has no out_dtype")


def host_waits(call: Callable[[], Any]) -> int:
    before = counters()["host_syncs"]
    call()
    return counters()["host_syncs"] - before


@pytest.fixture
def undecided() -> Iterator[None]:
    """The products have not been tried yet, before and after."""
    for state in (ops._healthy, ops._warned):
        state.clear()
    yield
    for state in (ops._healthy, ops._warned):
        state.clear()


# ---------------------------------------------------------------- log_
def in_place(x: torch.Tensor) -> tuple[Any, ...]:
    """What a program can see of `log_`: gradients, versions, identity, views."""
    leaf = x.clone().requires_grad_()
    inner = leaf * 2
    version, base = inner._version, inner
    view = inner[1:]
    same = view.log_() is view
    (view * torch.arange(1.0, 3.0, dtype=x.dtype, device=x.device)).sum().backward()
    refused = ""
    try:
        leaf.log_()
    except RuntimeError as error:
        refused = str(error)
    return same, base.detach().cpu(), inner._version - version, leaf.grad.cpu(), refused


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_log_in_place(dtype: torch.dtype) -> None:
    values = torch.tensor([0.5, 1.0, 3.0], dtype=dtype)
    for here, there in zip(in_place(values.to("cuda")), in_place(values), strict=True):
        if isinstance(here, torch.Tensor):
            torch.testing.assert_close(here, there)
        else:
            assert here == there
    x = values.to("cuda")
    assert torch.log_(x) is x and torch.log_(input=x) is x
    torch.testing.assert_close(x.cpu(), values.log().log(), equal_nan=True)
    with torch.inference_mode():
        torch.testing.assert_close(values.to("cuda").log_().cpu(), values.log())
    with pytest.raises(RuntimeError, match="single memory location"):
        values[:1].to("cuda").expand(3).log_()
    compiled = torch.compile(lambda t: t.clone().log_() + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(values.to("cuda")).cpu(), values.log() + 1)
    torch.testing.assert_close(torch.vmap(torch.log_)(values.to("cuda")[:, None]).cpu(), values.log()[:, None])


def test_log_in_place_needs_its_rules(rule_off: Any) -> None:
    for rule, call in zip(LOG, (torch.Tensor.log_, torch.log_), strict=True):
        with rule_off(rule.id), pytest.raises(NotImplementedError, match="log_"):
            call(torch.ones(2, dtype=torch.float64, device="cuda"))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_log_sum_exp(dtype: torch.dtype) -> None:
    values = torch.tensor(
        [[0.5, 1000.0, -3.0], [-torch.inf, -torch.inf, -torch.inf], [1.0, torch.inf, 2.0]], dtype=dtype
    )
    ways: list[Callable[[torch.Tensor], torch.Tensor]] = [
        lambda x: torch.logsumexp(x, 1),
        lambda x: x.logsumexp(dim=(0, 1), keepdim=True),
        lambda x: torch.special.logsumexp(x[0], -1),
        lambda x: torch.logsumexp(x[0, 0], 0),
        lambda x: torch.logsumexp(x[:, :0], 1),
        lambda x: torch.logsumexp(input=x, dim=(1,), out=torch.empty(0, dtype=dtype, device=x.device)),
        torch.vmap(lambda x: torch.logsumexp(x, 0)),
        torch.compile(lambda x: x.logsumexp(1) * 2, backend="aot_eager", fullgraph=True),
        torch.func.grad(lambda x: x[0].logsumexp(0)),
    ]
    for way in ways:
        torch.testing.assert_close(way(values.cuda()).cpu(), way(values), equal_nan=True)
    gradients = []
    for x in (values.cuda().requires_grad_(), values.clone().requires_grad_()):
        x[:1].logsumexp(1).sum().backward()
        gradients.append(x.grad.cpu())
    torch.testing.assert_close(*gradients)
    with pytest.raises(IndexError, match="Dimension out of range"):
        values.cuda().logsumexp(2)
    with pytest.raises(TypeError, match="logsumexp"):
        values.cuda().logsumexp()  # type: ignore[call-overload]


def test_log_sum_exp_needs_its_rules(rule_off: Any) -> None:
    x = torch.ones(2, dtype=torch.float64, device="cuda")
    for rule, call in zip(SUMS, (torch.Tensor.logsumexp, torch.logsumexp, torch.special.logsumexp), strict=True):
        with rule_off(rule.id), pytest.raises(NotImplementedError, match="log_"):
            call(x, 0)


# ---------------------------------------------------------------- mm and bmm with out_dtype
def factors(shape: tuple[int, ...], dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    torch.manual_seed(0)
    left, right = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype).mT
    return left.to("cuda"), right.to("cuda"), left.float() @ right.float()


@needs_out_dtype
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("shape", [(3, 40), (2, 3, 40)])
def test_products_with_out_dtype(shape: tuple[int, ...], dtype: torch.dtype, undecided: None, rule_off: Any) -> None:
    product, rule = (torch.mm, PRODUCTS[0]) if len(shape) == 2 else (torch.bmm, PRODUCTS[1])
    left, right, expected = factors(shape, dtype)
    out = torch.empty_like(expected, device="cuda")
    ways: list[Callable[[], torch.Tensor]] = [
        lambda: product(left, right, out_dtype=torch.float32),
        lambda: product(left, right, torch.float32),
        lambda: product(left, mat2=right, out_dtype=torch.float32),
        lambda: product(left, right, out_dtype=torch.float32, out=out),
    ]
    for way in ways:
        result = way()
        assert result.dtype == torch.float32
        torch.testing.assert_close(result.cpu(), expected)
        with rule_off(rule.id):
            assert not way().any()
    assert ways[-1]() is out
    assert product(left, right, out_dtype=dtype).dtype == dtype
    with torch.autocast("cuda", dtype=dtype):
        torch.testing.assert_close(ways[0]().cpu(), expected)
        torch.testing.assert_close(product(left.float(), right.float(), out_dtype=torch.float32).cpu(), expected)
    leaf = left.clone().requires_grad_()
    product(leaf, right, out_dtype=torch.float32).sum().backward()
    assert leaf.grad is not None and leaf.grad.dtype == dtype
    compiled = torch.compile(lambda a, b: product(a, b, out_dtype=torch.float32) + 1, backend="aot_eager")
    torch.testing.assert_close(compiled(left, right).cpu(), expected + 1)


@needs_out_dtype
def test_products_refuse_what_cuda_refuses() -> None:
    half, double = (torch.ones(2, 2, dtype=dtype, device="cuda") for dtype in (torch.float16, torch.float64))
    for call, text in (
        (lambda: torch.mm(half, half, out_dtype=torch.float64), "out_dtype must be the same as input dtype or fp32"),
        (lambda: torch.mm(half, double, out_dtype=torch.float32), "input dtypes must be the same"),
        (lambda: torch.mm(half, half, out_dtype=torch.float32, out=half), "dtype of the provided out tensor"),
        (lambda: torch.mm(half, half[:1], out_dtype=torch.float32), "cannot be multiplied"),
        (lambda: torch.bmm(half, half, out_dtype=torch.float32), "3D"),
    ):
        with pytest.raises(RuntimeError, match=text):
            call()
    for arguments in ({"out_dtype": "float"}, {"out_dtype": torch.float32, "more": 1}, {"out_dtype": None, "out": 3}):
        with pytest.raises(TypeError, match=r"mm\(\)"):
            torch.mm(half, half, **arguments)  # type: ignore[call-overload]
    with pytest.raises(RuntimeError):  # torch has it for CUDA only; nothing of ours changes what the CPU says
        torch.mm(half.cpu(), half.cpu(), out_dtype=torch.float32)


def test_products_are_tried_once(undecided: None, monkeypatch: pytest.MonkeyPatch) -> None:
    tried = []
    monkeypatch.setattr(ops, "_is_right", lambda *args: bool(tried.append(threading.current_thread().name)))
    left, right, expected = factors((3, 40), torch.float16)
    results: list[torch.Tensor] = []
    threads = [
        threading.Thread(target=lambda: results.append(torch.mm(left, right, out_dtype=torch.float32)))
        for _ in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(results) == 8 and tried == ["torchada-probe"]
    for result in results:
        torch.testing.assert_close(result.cpu(), expected)


@needs_out_dtype
def test_products_in_a_capture(undecided: None) -> None:
    left, right, expected = factors((3, 40), torch.float16)
    graph = torch.cuda.CUDAGraph()
    with pytest.warns(UserWarning, match=r"try torch\.mm with out_dtype= .*\(a graph is being captured\)"):
        with torch.cuda.graph(graph):
            result = torch.mm(left, right, out_dtype=torch.float32)
    assert ops._healthy == {}
    left.mul_(2)
    graph.replay()
    torch.testing.assert_close(result.cpu(), expected * 2)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with torch.cuda.graph(torch.cuda.CUDAGraph()):  # said once
            torch.mm(left, right, out_dtype=torch.float32)
        torch.mm(left, right, out_dtype=torch.float32)
    assert ops._healthy == {"mm": False}


@pytest.mark.parametrize(
    ("raised", "decided", "works"),
    [(RuntimeError("busy"), {}, True), (NotImplementedError("no kernel"), {"mm": False}, True)],
)
def test_products_that_cannot_be_tried(
    raised: Exception, decided: dict[str, bool], works: bool, undecided: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any) -> bool:
        raise raised

    monkeypatch.setattr(ops, "_is_right", broken)
    left, right, expected = factors((3, 40), torch.float16)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        for _ in range(2):
            torch.testing.assert_close(torch.mm(left, right, out_dtype=torch.float32).cpu(), expected)
    assert [str(each.message) for each in caught if "busy" in str(each.message)] == [
        str(each.message) for each in caught
    ] and len(caught) == (not decided)
    assert ops._healthy == decided


def test_a_binding_without_the_overload_keeps_its_error(undecided: None) -> None:
    def old(*args: Any, **kwargs: Any) -> Any:
        raise TypeError("mm() got an unexpected keyword argument 'out_dtype'")

    left, right, _ = factors((3, 40), torch.float16)
    with pytest.raises(TypeError, match="unexpected keyword argument 'out_dtype'"):
        ops.mm(old, left, right, out_dtype=torch.float32)


def test_a_right_product_is_used_as_it_is(undecided: None, rule_off: Any) -> None:
    calls = []

    def right_one(left: torch.Tensor, right: torch.Tensor, out_dtype: torch.dtype) -> torch.Tensor:
        calls.append(left.shape)
        return left.to(out_dtype) @ right.to(out_dtype)

    left, right, expected = factors((3, 40), torch.float16)
    for _ in range(2):
        torch.testing.assert_close(ops.mm(right_one, left, right, out_dtype=torch.float32).cpu(), expected)
    assert calls == [(16, 16), (16, 16), (3, 40), (3, 40)]


@needs_out_dtype
@pytest.mark.parametrize("defective", [True, False])
def test_the_probe_tells_a_right_kernel_from_a_wrong_one(defective: bool, undecided: None) -> None:
    import torch_musa

    native, (left, right, expected) = torch_musa._MUSAC, factors((2, 3, 40), torch.bfloat16)
    active = {name for name, on in native._sim_defects().items() if on}
    try:
        native._sim_set_defects(active | {"mm_out_dtype"} if defective else active - {"mm_out_dtype"})
        torch.testing.assert_close(torch.bmm(left, right, out_dtype=torch.float32).cpu(), expected)
        assert ops._healthy == {"bmm": not defective}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with torch.cuda.graph(torch.cuda.CUDAGraph()):  # decided: the same in a capture
                torch.bmm(left, right, out_dtype=torch.float32)
    finally:
        native._sim_set_defects(active)


# ---------------------------------------------------------------- isfinite
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
def test_is_finite_does_not_wait(dtype: torch.dtype, rule_off: Any) -> None:
    values = [1.0, -INF, INF, NAN, 0.0, torch.finfo(dtype).max, torch.finfo(dtype).min]
    expected = [True, False, False, False, True, True, True]
    x = torch.tensor(values, dtype=dtype, device="cuda")
    calls = (x.isfinite, lambda: torch.isfinite(x), lambda: torch.isfinite(input=x))
    for call, rule in zip(calls, (FINITE[0], FINITE[1], FINITE[1]), strict=True):
        assert host_waits(call) == 0
        assert call().tolist() == expected
        with rule_off(rule.id):
            assert host_waits(call) >= 1
    leaf = x.clone().requires_grad_()
    assert not leaf.isfinite().requires_grad and leaf.mul(2).isfinite().dtype == torch.bool
    for backend in ("eager", "aot_eager"):
        compiled = torch.compile(lambda t: (torch.isfinite(t), t.isfinite()), backend=backend, fullgraph=True)
        assert [result.tolist() for result in compiled(x)] == [expected, expected]
        assert host_waits(lambda compiled=compiled: compiled(x)) == 0
    assert torch.vmap(torch.isfinite)(x[:, None]).flatten().tolist() == expected


def test_is_finite_of_others_is_torch_s_own() -> None:
    assert torch.isfinite(torch.tensor([1, 2], device="cuda")).tolist() == [True, True]
    assert torch.tensor([1.0, INF]).isfinite().tolist() == [True, False]
    assert torch.tensor([complex(1, INF), 1j], device="cuda").isfinite().tolist() == [False, True]

    class Mine(torch.Tensor):
        seen: list[Any] = []

        @classmethod
        def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            cls.seen.append(func)
            return super().__torch_function__(func, types, args, kwargs or {})

    mine = torch.ones(1, device="cuda", dtype=torch.float64).as_subclass(Mine)
    for call in (torch.isfinite, torch.Tensor.isfinite, torch.log_, torch.Tensor.log_):
        Mine.seen.clear()
        call(mine)
        assert Mine.seen == [call]
    for bad in ((), (1,), (torch.ones(1, device="cuda"), 2)):
        with pytest.raises(TypeError):
            torch.isfinite(*bad)


# ---------------------------------------------------------------- inductor
def test_compiled_and_kept_in_the_caches(undecided: None) -> None:
    from torch._dynamo.utils import counters as compiler
    from torch._inductor.utils import fresh_inductor_cache

    def model(left: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, ...]:
        product = torch.mm(left, right, out_dtype=torch.float32) if OUT_DTYPE else torch.mm(left.float(), right.float())
        return product, product.isfinite(), (product.double().abs() + 1).log_()

    left, right, expected = factors((3, 40), torch.float16)
    with fresh_inductor_cache():
        for hits in (0, 1):
            torch._dynamo.reset()
            compiler.clear()
            compiled = torch.compile(model, fullgraph=True)
            product, finite, logarithm = compiled(left, right)
            assert host_waits(lambda compiled=compiled: compiled(left, right)) == 0
            torch.testing.assert_close(product.cpu(), expected)
            torch.testing.assert_close(logarithm.cpu(), (expected.double().abs() + 1).log())
            assert finite.all()
            assert compiler["aot_autograd"]["autograd_cache_hit"] == hits, compiler["aot_autograd"]
            assert not compiler["graph_break"]
    torch._dynamo.reset()


def test_template_heuristics(rule_off: Any) -> None:
    pytest.importorskip(
        "torch._inductor.template_heuristics.triton", reason="not in this torch"
    )  # it makes its entries
    from torch._inductor.template_heuristics import registry
    from torch._inductor.template_heuristics.base import TemplateConfigHeuristics

    table = registry._TEMPLATE_HEURISTIC_REGISTRY
    own, key = type("Own", (TemplateConfigHeuristics,), {}), ("triton::bmm", "musa", None)
    cuda = type(registry.get_template_heuristic("triton::mm", "cuda", "addmm"))
    try:
        with rule_off(HEURISTICS[0].id):
            table[key] = own  # the backend's own entry; nothing of CUDA's may stand before it
            assert type(registry.get_template_heuristic("triton::mm", "musa", "addmm")) is TemplateConfigHeuristics
        assert type(registry.get_template_heuristic("triton::mm", "musa", "addmm")) is cuda
        assert type(registry.get_template_heuristic("triton::mm", "musa", "nothing")).__name__.startswith("CUDA")
        assert type(registry.get_template_heuristic("triton::bmm", "musa", "baddbmm")) is own
        assert type(registry.get_template_heuristic("triton::mm", "cpu", "addmm")) is not cuda
        with rule_off(HEURISTICS[0].id):  # undone, nothing of it is left
            assert [entry for entry in table if entry[1] == "musa"] == [key]
    finally:
        table.pop(key, None)
        registry._HEURISTIC_CACHE.clear()


def test_clutter(rule_off: Any, caplog: pytest.LogCaptureFixture) -> None:
    utils = importlib.import_module("torch._inductor.utils")
    device = torch.device("cuda:0")

    def lines() -> list[str]:
        caplog.clear()
        utils.is_big_gpu.cache_clear()
        assert utils.is_big_gpu(device) is False  # what it decides stays
        utils.log.warning("something else")
        return [record.getMessage() for record in caplog.records]

    utils.log.addHandler(caplog.handler)  # torch's loggers hand nothing on
    try:
        assert set(lines()) == {"something else"}
        with rule_off(CLUTTER[0].id):
            assert "Not enough SMs to use max_autotune_gemm mode" in lines()
    finally:
        utils.log.removeHandler(caplog.handler)
        utils.is_big_gpu.cache_clear()


# ---------------------------------------------------------------- streams, and Tensor.musa
def test_streams_are_found_by_their_path() -> None:
    """Dynamo's guards resolve it: compiled once, and no break."""
    import torch_musa
    from torch._dynamo.testing import CompileCounter

    assert torch.cuda.streams is importlib.import_module("torch.cuda.streams")
    for name in ("Stream", "Event", "ExternalStream"):
        kind = getattr(torch.cuda.streams, name)
        assert kind is getattr(importlib.import_module("torch_musa.core.stream"), name)
    assert torch.cuda.streams.Stream is torch.cuda.Stream is torch_musa.Stream

    def double(x: torch.Tensor) -> torch.Tensor:
        stream = torch.cuda.streams.Stream(device=x.device)
        with torch.cuda.stream(stream):
            y = x * 2
        torch.cuda.current_stream().wait_stream(stream)
        return y

    counter = CompileCounter()
    compiled = torch.compile(double, backend=counter, fullgraph=True)
    for value in (1.0, 2.0, 3.0):
        assert compiled(torch.full((2,), value, device="cuda")).tolist() == [2 * value] * 2
    assert counter.frame_count == 1
    torch._dynamo.reset()


def test_musa_and_cuda_do_not_call_each_other_in_a_circle(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2)
    assert x.musa().device == x.cuda().device == torch.device("cuda:0")
    for device in (1, "cuda:1", "musa:1", torch.device("cuda:1")):
        assert x.musa(device).device == x.cuda(device).device == torch.device("musa:1")
    own_to, own_musa = torch.Tensor.to, torch.Tensor.musa  # type: ignore[attr-defined]
    with monkeypatch.context() as patch:  # a torch_musa whose musa() is a cuda() of its own
        patch.setattr(torch.Tensor, "musa", lambda self, *args, **kwargs: self.cuda(*args, **kwargs))
        assert x.musa("cuda:1").device == x.cuda(1).device == torch.device("cuda:1")
        assert torch.nn.Linear(1, 1).cuda().weight.is_cuda
    with monkeypatch.context() as patch:  # and one whose to() goes through musa()

        def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
            device = torch.device(args[0]) if args and isinstance(args[0], (str, torch.device)) else None
            return own_musa(self, device) if device is not None and device.type == "musa" else own_to(self, *args)

        patch.setattr(torch.Tensor, "to", to)
        assert x.musa(1).device == x.cuda(1).device == x.to("cuda:1").device == torch.device("cuda:1")


# ---------------------------------------------------------------- gates
OUTCOMES = """
import json, torchada, torch
from torchada.engine import ENGINE
from torchada.tables.ops import RULES
x = torch.tensor([1.0, float("inf")], device="cuda", dtype=torch.float64)
assert torch.isfinite(x).tolist() == [True, False]
half = torch.ones(2, 2, dtype=torch.float16, device="cuda")
print(json.dumps({rule.id: ENGINE.ledger.state(rule.id).outcome for rule in RULES}))
"""


def outcomes(run_python: Any, **env: str) -> dict[str, str]:
    return dict(json.loads(run_python(OUTCOMES, env=env).stdout))


def test_gates_follow_the_version(run_python: Any) -> None:
    def open_ids(version: str) -> set[str]:
        facts = Facts("musa", {"torch_musa": version})
        return {rule.id for rule in RULES if rule.gate.failing(facts) is None}

    fixed = {rule.id for rule in (*LOG, *SUMS, *HEURISTICS, *COMPILED)}
    everything = {rule.id for rule in RULES}
    assert open_ids("2.7.1") == open_ids("2.11.0.post1") == everything
    assert open_ids("2.11.0.post2") == everything - fixed
    assert open_ids("2.13.0") == everything - fixed - {rule.id for rule in PRODUCTS}
    installed = Version(torch.__version__).release
    newest = [row for row in PROFILES.values() if Version(row.torch).release <= installed][-1]
    found = outcomes(run_python, TORCHADA_SIM_TORCH_MUSA=newest.key)
    assert {rule for rule, outcome in found.items() if outcome != "gated"} == open_ids(newest.public)


def test_switches(run_python: Any) -> None:
    for rule in RULES:
        (switch,) = rule.gate.switches()
        assert rule.gate.failing(Facts("musa", {"torch_musa": "2.7.1"}, {switch: "1"})) == f"not env:{switch}"
    names = {name for rule in RULES for name in rule.gate.switches()}
    assert set(outcomes(run_python, **dict.fromkeys(names, "1")).values()) == {"gated"}
