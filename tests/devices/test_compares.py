"""Places where torch's own Python asks for CUDA by name: each does for the MUSA device what it does for CUDA."""

from __future__ import annotations

import importlib.util
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
import torch._dynamo.compiled_autograd
import torch._functorch.config
import torch._higher_order_ops
import torch._inductor.compile_fx
import torch._inductor.output_code
import torch._inductor.utils
import torch.fx.passes.backends.cudagraphs
import torch.utils.viz._cycles
from torch._inductor import config as inductor
from torch.fx.experimental.proxy_tensor import make_fx

from torchada.redirect import rename_compared

RuleOff = Callable[[str], AbstractContextManager[None]]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def ones(*size: int, **options: Any) -> torch.Tensor:
    return torch.ones(*size, device="cuda", **options)


# ---------------------------------------------------------------- how it is done
def test_compared_names_are_the_backends() -> None:
    def compares(kind: str, others: tuple[str, ...] = ("cuda:1",)) -> Any:
        """cuda"""
        known = [each in ("cuda", "xpu") and kind in {"cuda", "mtia"} for each in (kind,)]
        return kind == "cuda", known, others, kind == "CUDA", "is cuda"

    before = compares.__code__
    undo = rename_compared(compares)
    assert compares("musa") == (True, [True], ("cuda:1",), False, "is cuda")
    assert compares("cuda")[:2] == (False, [False])
    assert (compares.__code__.co_filename, compares.__code__.co_firstlineno) == (
        before.co_filename,
        before.co_firstlineno,
    )
    undo()
    assert compares.__code__ is before
    with pytest.raises(AttributeError, match="compares nothing with a CUDA device"):
        rename_compared(lambda device: device.type == "xpu")  # type: ignore[arg-type]


# ---------------------------------------------------------------- the compiler
def test_compiling_draws_no_random_numbers(rule_off: RuleOff) -> None:
    def draws() -> bool:
        torch._dynamo.reset()
        torch.cuda.manual_seed(0)
        expected = torch.rand(3, device="cuda")
        torch.cuda.manual_seed(0)

        def backend(graph: Any, inputs: Any) -> Any:
            torch.rand(4, device="cuda")  # as one does that tries kernels
            return graph

        compiled = torch.compile(lambda x: x + torch.rand(3, device="cuda"), backend=backend)
        return not torch.equal(compiled(torch.zeros(3, device="cuda")), expected)

    assert not draws()
    older = not hasattr(torch._dynamo.convert_frame, "trace_frame")
    with rule_off(f"torch._dynamo.convert_frame:{'_compile' if older else 'trace_frame'}"):
        assert draws()


@pytest.mark.skipif(
    not hasattr(torch._dynamo.symbolic_convert.InstructionTranslatorBase, "_maybe_emit_sync_dealloc"),
    reason="not in this torch",
)
def test_memory_waits_for_the_stream_that_used_it(rule_off: RuleOff) -> None:
    def waits() -> bool:
        torch._dynamo.reset()
        graphs: list[Any] = []

        def backend(graph: Any, inputs: Any) -> Any:
            graphs.append(graph)
            return graph

        def function(x: torch.Tensor) -> torch.Tensor:
            with torch.cuda.stream(torch.cuda.Stream()):
                y = x * 2
            torch.cuda.synchronize()
            z = y + 1
            del y
            return z * 2

        assert torch.compile(function, backend=backend)(ones(3)).tolist() == [6, 6, 6]
        return any("sync_dealloc" in graph.code for graph in graphs)

    assert waits()
    with rule_off("torch._dynamo.symbolic_convert:InstructionTranslatorBase._maybe_emit_sync_dealloc"):
        assert not waits()


def test_scalars_of_compiled_autograd(rule_off: RuleOff) -> None:
    def places() -> set[str]:
        torch._dynamo.reset()
        found: set[str] = set()

        def compiler(graph: Any) -> Any:
            def run(inputs: Any, *more: Any) -> Any:
                found.update(each.device.type for each in inputs)
                return graph(inputs, *more)

            return run

        x = ones(4, requires_grad=True)
        with inductor.patch("triton.cudagraphs", True), torch._dynamo.compiled_autograd._enable(compiler):
            (gradient,) = torch.autograd.grad((x * torch.tensor(2.0)).sum(), x)
        assert gradient.tolist() == [2, 2, 2, 2]
        return found

    assert places() == {"musa"}
    with rule_off("torch._dynamo.compiled_autograd:AutogradCompilerInstance.move_graph_nodes_to_cuda"):
        assert places() == {"musa", "cpu"}


def test_compiled_code_names_its_device(rule_off: RuleOff) -> None:
    package = pytest.importorskip("torch._dynamo.package", reason="not in this torch")
    if not hasattr(getattr(package, "SystemInfo", None), "CHECK_GPUS"):
        pytest.skip("this torch ties no code to a card")
    here = package.SystemInfo.current()
    assert here.gpu_name == torch.cuda.get_device_name()
    here.check_compatibility(here, "musa")
    other = types.SimpleNamespace(**vars(here) | {"gpu_name": "MTT S80"})
    with pytest.raises(RuntimeError, match="different GPU"):
        here.check_compatibility(other, "musa")  # type: ignore[arg-type]
    with rule_off("torch._dynamo.package:SystemInfo.CHECK_GPUS"):
        here.check_compatibility(other, "musa")  # type: ignore[arg-type]


def test_the_device_of_the_graph_is_current(rule_off: RuleOff) -> None:
    def current(*devices: str) -> int:
        graph = make_fx(lambda *xs: [x + 1 for x in xs])(*(torch.ones(2, device=device) for device in devices))
        with torch._inductor.compile_fx.get_cuda_device_context(graph):
            return torch.cuda.current_device()

    assert (current("cuda:1"), current("cuda:0", "cuda:1"), current("cpu")) == (1, 0, 0)
    with rule_off("torch._inductor.compile_fx:get_cuda_device_context"):
        assert current("cuda:1") == 0


@pytest.mark.skipif(importlib.util.find_spec("triton") is not None, reason="Triton answers")
def test_streams_in_compiled_training(rule_off: RuleOff) -> None:
    def function(x: torch.Tensor) -> torch.Tensor:
        with torch.cuda.stream(torch.cuda.Stream()):
            y = x * 2
        torch.cuda.synchronize()
        return (y + 1) * y

    def gradient() -> list[float]:
        torch._dynamo.reset()
        torch._inductor.utils.get_gpu_dram_gbps.cache_clear()
        x = ones(2, requires_grad=True)
        torch.compile(function, backend="aot_eager")(x).sum().backward()
        assert x.grad is not None
        return x.grad.tolist()

    assert gradient() == [10, 10]
    with (
        rule_off("torch._inductor.utils:get_gpu_dram_gbps.__wrapped__"),
        pytest.raises(Exception, match="No module named 'triton'"),
    ):
        gradient()


def test_a_function_that_is_not_captured_is_told(rule_off: RuleOff, monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[str] = []
    monkeypatch.setattr(torch._inductor.output_code, "log_cudagraph_skip_and_bump_counter", told.append)

    def told_of(function: Callable[[torch.Tensor], Any], **options: Any) -> list[str]:
        torch._dynamo.reset()
        told.clear()
        caches = torch._functorch.config.patch(enable_autograd_cache=options.get("fx_graph_cache", True))
        with caches, inductor.patch({"graph_partition": False, **options}):
            torch.compile(function, mode="reduce-overhead")(ones(4))
        return list(told)

    def on_the_cpu(x: torch.Tensor) -> Any:
        return x + 1, torch.ones(3) * 2

    def without_reason(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    for row, function, options in (
        ("CompiledFxGraph.__init__", on_the_cpu, {"fx_graph_cache": False}),
        ("CompiledFxGraph.post_compile", on_the_cpu, {}),  # found in a cache
        ("cudagraph_post_compile", without_reason, {"force_disable_cudagraph_TESTING_ONLY": True}),
    ):
        if not all(hasattr(inductor, option) for option in options):
            continue  # not in this torch
        told_of(function, **options)
        assert any("skipping cudagraphs" in line for line in told_of(function, **options)), row
        with rule_off(f"torch._inductor.output_code:{row}"):
            assert not told_of(function, **options), row


# ---------------------------------------------------------------- others
def test_associative_scan(rule_off: RuleOff) -> None:
    scan = torch._higher_order_ops.associative_scan
    x = torch.rand(5, 2, device="cuda")
    assert torch.allclose(scan(torch.add, x, 0, combine_mode="pointwise"), x.cumsum(0))
    # An older torch compiles the check as well, and Dynamo tells of the ValueError.
    with pytest.raises((ValueError, torch._dynamo.exc.Unsupported), match=r"need to be on CUDA|ValueError"):
        scan(torch.add, x.cpu(), 0, combine_mode="pointwise")
    with (
        rule_off("torch._higher_order_ops.associative_scan:associative_scan"),
        pytest.raises((ValueError, torch._dynamo.exc.Unsupported), match=r"need to be on CUDA|ValueError"),
    ):
        scan(torch.add, x, 0, combine_mode="pointwise")


def test_partitions_for_graphs(rule_off: RuleOff) -> None:
    x = ones(3)

    def partitions() -> int:
        graph = make_fx(lambda x: (x + 1).relu())(x)
        parted = torch.fx.passes.backends.cudagraphs.partition_cudagraphs(graph, [x])
        assert torch.equal(parted(x), x + 1)
        return sum(node.op == "call_module" for node in parted.graph.nodes)

    assert partitions() == 1
    with rule_off("torch.fx.passes.backends.cudagraphs:CudaGraphsSupport.is_node_supported"):
        assert partitions() == 0


def test_cycles(rule_off: RuleOff) -> None:
    is_ours = torch.utils.viz._cycles.is_cuda_tensor
    assert is_ours(ones(1))
    assert not is_ours(torch.ones(1))
    if "is_cuda" in is_ours.__code__.co_names:  # an older torch; that property has a row of its own
        return
    with rule_off("torch.utils.viz._cycles:is_cuda_tensor"):
        assert not is_ours(ones(1))


@pytest.mark.skipif(not hasattr(torch.nn, "LinearCrossEntropyOptions"), reason="torch before 2.13 has none")
def test_linear_cross_entropy(rule_off: RuleOff) -> None:
    generator = torch.Generator().manual_seed(0)
    x, weight = (torch.randn(size, 32, generator=generator).bfloat16().cuda() for size in (256, 512))
    target = torch.randint(0, 512, (256,), generator=generator).cuda()

    def error() -> float:
        inputs = [x.clone().requires_grad_(), weight.clone().requires_grad_()]
        loss = torch.nn.functional.linear_cross_entropy(*inputs, target, options=torch.nn.LinearCrossEntropyOptions())
        exact = [each.double().requires_grad_() for each in (x, weight)]
        reference = torch.nn.functional.cross_entropy(exact[0] @ exact[1].t(), target)
        ours, theirs = torch.autograd.grad(loss, inputs), torch.autograd.grad(reference, exact)
        return max(float((a - b).norm() / b.norm()) for a, b in zip(ours, theirs, strict=True))

    close = error()
    assert close < 0.01
    with rule_off("torch.nn.modules.linear_cross_entropy_options:LinearCrossEntropyOptions._resolve_auto_acc_dtype"):
        assert error() > 2 * close


def test_optimizers_in_graphs(rule_off: RuleOff) -> None:
    checks = [f"torch.optim.optimizer:Optimizer._{kind}_graph_capture_health_check" for kind in ("accelerator", "cuda")]
    check = checks[0 if hasattr(torch.optim.Optimizer, "_accelerator_graph_capture_health_check") else 1]
    parameter = torch.nn.Parameter(ones(3))
    parameter.grad = torch.ones_like(parameter)

    def capture(**options: Any) -> None:
        optimizer = torch.optim.Adam([parameter], **options)
        optimizer.step()
        with torch.cuda.graph(torch.cuda.CUDAGraph()):
            optimizer.step()

    capture(capturable=True)
    with pytest.raises(RuntimeError, match=r"capture of step\(\) for an instance of Adam but .* capturable is False"):
        capture()
    with rule_off(check):
        capture()
