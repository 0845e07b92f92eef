"""torch.compile with inductor on the simulated device: C++ kernels that run as launches on it."""

import pytest

from .compiled import programs

run = pytest.fixture(scope="module", name="run")(programs)


def test_forward_reductions_views_and_dynamic_shapes(run):
    run(
        """
        def f(x, y):
            z = (x.sin() * y).sum(-1, keepdim=True)
            return z.softmax(0), (x.t() @ y).relu_(), torch.var_mean(x.cumsum(0)[::2].to(torch.float64))

        compiled = torch.compile(f, dynamic=True, fullgraph=True)
        for rows in (5, 9, 17):
            x, y = torch.randn(2, rows, 7, device="musa")
            torch.testing.assert_close(compiled(x, y), f(x, y))
        assert counters["stats"]["unique_graphs"] == 1, counters
        """
    )


def test_a_kernel_is_a_launch_on_the_device(run):
    run(
        """
        from torch._inductor.utils import run_and_get_code
        from torchada.simulator import counters as device

        compiled = torch.compile(lambda x: (x * 2 + 1).sigmoid())
        x = torch.randn(32, device="musa:1")
        out, (code,) = run_and_get_code(compiled, x)
        assert out.device == torch.device("musa:1") and torch.equal(out, (x * 2 + 1).sigmoid())
        assert "simulated_musa_kernel(async_compile, 'cpp_fused" in code and "torch.musa._DeviceGuard(1)" in code
        before = device()
        compiled(x)
        after = device()
        changed = {k: after[k] - before[k] for k in after if after[k] != before[k]}
        assert changed == {"kernel_launches": 1}, changed     # one fused kernel, no copy, no wait
        assert torch_musa.current_device() == 0
        """
    )


def test_training_step_follows_eager(run):
    run(
        """
        import copy
        torch.manual_seed(0)
        eager = torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3, bias=False), torch.nn.BatchNorm2d(4), torch.nn.ReLU(), torch.nn.Flatten(),
            torch.nn.Linear(144, 8), torch.nn.LayerNorm(8), torch.nn.GELU(), torch.nn.Linear(8, 3)).musa()
        model = copy.deepcopy(eager)
        data, target = torch.randn(4, 1, 8, 8, device="musa"), torch.randint(3, (4,), device="musa")
        losses = []
        for module in (eager, model):
            forward = torch.compile(module, fullgraph=True) if module is model else module
            optimizer = torch.optim.AdamW(module.parameters(), lr=1e-2)
            losses.append([])
            for _ in range(3):
                loss = torch.nn.functional.cross_entropy(forward(data), target)
                loss.backward(); optimizer.step(); optimizer.zero_grad()
                losses[-1].append(loss.item())
        torch.testing.assert_close(losses[0], losses[1], rtol=1e-4, atol=1e-5)
        torch.testing.assert_close(dict(eager.named_buffers()), dict(model.named_buffers()))
        assert counters["aot_autograd"]["ok"] == 1 and not counters["graph_break"]
        """
    )


def test_random_numbers_and_their_seeds(run):
    run(
        """
        def f(x):
            return torch.nn.functional.dropout(x, 0.5) + torch.rand(x.shape, device=x.device)

        x = torch.ones(1000, device="musa")
        compiled = torch.compile(f, fullgraph=True)
        cpu_state = torch.random.get_rng_state()
        torch_musa.manual_seed(3); first = compiled(x); second = compiled(x)
        torch_musa.manual_seed(3)
        assert torch.equal(compiled(x), first) and not torch.equal(first, second)
        kept = int((first >= 2).sum())
        assert 420 < kept < 580 and 0 <= first.min() and first.max() < 3
        assert torch.equal(torch.random.get_rng_state(), cpu_state)          # the device has its own
        with torch._inductor.config.patch(fallback_random=True):
            torch._dynamo.reset()
            compiled = torch.compile(f)
            torch_musa.manual_seed(3); first = compiled(x)
            torch_musa.manual_seed(3)
            assert torch.equal(f(x), first)
        """
    )


def test_mutation_of_inputs_and_index_writes(run):
    run(
        """
        def f(x, index, values, scalar):
            x.index_put_((index,), values, accumulate=True)
            x[1:3].mul_(scalar)                                   # a scalar of the host
            return x.scatter_add(0, index, values)

        compiled = torch.compile(f)
        index, values = torch.tensor([0, 2, 2, 5], device="musa"), torch.arange(4.0, device="musa")
        a, b = torch.ones(6, device="musa"), torch.ones(6, device="musa")
        scalar = torch.tensor(3.0)
        torch.testing.assert_close(compiled(a, index, values, scalar), f(b, index, values, scalar))
        assert torch.equal(a, b)
        """
    )


def test_half_precision_and_autocast(run):
    run(
        """
        def f(x, w):
            with torch.autocast("musa", dtype=torch.bfloat16):
                y = torch.nn.functional.linear(x, w)
            return y, (x.half() * 2).exp().float()

        x, w = torch.randn(4, 8, device="musa"), torch.randn(3, 8, device="musa")
        got = torch.compile(f, fullgraph=True)(x, w)
        assert got[0].dtype == torch.bfloat16
        torch.testing.assert_close(got, f(x, w), rtol=1e-2, atol=1e-2)
        """
    )


def test_two_devices_and_the_host_in_one_process(run):
    run(
        """
        from torch._inductor.utils import run_and_get_code

        def f(x, y):
            a = x.exp() + 1
            b = y.exp() + 1                                      # the same kernel on the host
            return a + b.to(x.device), b

        x = torch.randn(4, device="musa:1")
        (got, host), (code,) = run_and_get_code(torch.compile(f, fullgraph=True), x, x.cpu())
        assert got.device == torch.device("musa:1") and host.device.type == "cpu"
        torch.testing.assert_close(got.cpu(), 2 * host)
        assert "async_compile.cpp_pybinding" in code and "simulated_musa_kernel" in code

        def g(x, y):
            return x.sin() + 1, y.sin() + 1

        for i, part in enumerate(torch.compile(g)(x.to("musa:0"), x)):
            assert part.device == torch.device("musa", i)
            torch.testing.assert_close(part.cpu(), x.cpu().sin() + 1)
        """
    )


CPU_PROGRAM = """
import torch
from torch._inductor.utils import run_and_get_code
x = torch.linspace(0, 1, 30).reshape(5, 6)
out, codes = run_and_get_code(torch.compile(lambda x: ((x.cos() * x).sum(-1), (x @ x.t()).relu(), torch.rand(3))), x)
print(repr(codes), [float(part.sum()) for part in out[:2]])
"""


def test_cpu_code_is_the_same_with_and_without_torch_musa(run):
    changes = {"TORCHINDUCTOR_FX_GRAPH_CACHE": "0", "TORCHINDUCTOR_AUTOGRAD_CACHE": "0"}
    alone = run.fresh(CPU_PROGRAM, preamble="", **changes)
    # torch_musa has made torch.cuda's initialisation its own; the vendor's build of torch does not mind, nor does this.
    assert run.fresh(CPU_PROGRAM, **changes) == alone and "cpp_fused" in alone
    compiler_first = (
        "import torch._inductor.compile_fx, torchada.simulator\ntorchada.simulator.install()\nimport torch_musa\n"
    )
    assert run.fresh(CPU_PROGRAM, preamble=compiler_first, **changes) == alone


CACHED = """
from torch._dynamo.utils import counters
model = torch.nn.Linear(4, 4).musa()
out = torch.compile(model)(torch.ones(2, 4, device="musa", requires_grad=True))
out.sum().backward()
print(counters["inductor"]["fxgraph_cache_hit"], counters["inductor"]["fxgraph_cache_miss"],
      counters["aot_autograd"]["autograd_cache_hit"], counters["aot_autograd"]["autograd_cache_miss"])
"""


def test_caches_hold_across_processes_and_tell_devices_apart(run):
    assert run.fresh(CACHED).split() == ["0", "2", "0", "1"]
    assert run.fresh(CACHED).split() == ["2", "0", "1", "0"]
    assert run.fresh(CACHED, TORCHADA_SIM_DEVICE="S80").split() == ["0", "2", "0", "1"]


def test_a_graph_compiled_by_itself_is_saved_and_loaded(run, tmp_path):
    """What inference engines call in place of torch.compile: it tunes Triton's kernels at once, where there are any."""
    run(
        f"""
        from torch.fx.experimental.proxy_tensor import make_fx
        if not hasattr(torch._inductor, "standalone_compile"):
            raise SystemExit  # an older torch

        def program(x, y):
            return (x @ x + torch.ones(4, device="musa:1")).sin(), y * 2

        inputs = [torch.ones(4, 4, device="musa:1"), torch.ones(3)]
        expected = program(*inputs)
        compiled = torch._inductor.standalone_compile(make_fx(program, tracing_mode="fake")(*inputs), inputs)
        compiled.save(path={str(tmp_path / "graph")!r}, format="unpacked")
        loaded = torch._inductor.CompiledArtifact.load(path={str(tmp_path / "graph")!r}, format="unpacked")
        for call in (compiled, loaded):
            for found, value in zip(call(*inputs), expected, strict=True):
                assert found.device == value.device and torch.allclose(found, value)
        """
    )


def test_an_empty_cache_directory_works_as_torchs(run, tmp_path):
    code = "print(torch.compile(lambda x: x + 1)(torch.ones(1, device='musa')).item())"
    changes = {"TORCHINDUCTOR_CACHE_DIR": "", "TORCHINDUCTOR_CPP_CACHE_PRECOMPILE_HEADERS": "0"}
    assert run.fresh(code, cwd=tmp_path, **changes) == "2.0\n"  # torch then writes into the working directory


def test_graph_modes_compile_and_say_that_they_do_not_capture(run):
    run(
        """
        x = torch.randn(8, 8, device="musa")
        for mode in ("reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs"):
            torch._dynamo.reset(); counters.clear()
            f = lambda x: (x @ x).relu() + 1
            torch.testing.assert_close(torch.compile(f, mode=mode)(x), f(x))
            # torch's graph trees are for CUDA devices; torch_musa has a backend of its own for graphs
            skipped = counters["inductor"]["cudagraph_skips"] > 0
            assert skipped == (mode != "max-autotune-no-cudagraphs"), (mode, counters)
        """
    )


def test_what_inductor_is_told(run):
    run(
        """
        from torch._inductor import codecache, config, utils
        from torch._inductor.codegen import common, cpp_utils
        from torch._inductor.runtime import benchmarking
        import torch.utils._triton
        assert utils.GPU_TYPES.count("musa") == 1 and "cuda" in utils.GPU_TYPES
        assert utils.is_gpu is torch_musa._inductor.utils.is_gpu and utils.is_gpu("musa") and not utils.is_gpu("cpu")
        assert torch.utils._triton.has_triton is torch_musa._inductor.utils.has_triton
        assert cpp_utils.DEVICE_TO_ATEN is torch_musa._inductor.codegen.cpp_utils.DEVICE_TO_ATEN
        assert cpp_utils.DEVICE_TO_ATEN["musa"] == "at::kPrivateUse1"
        assert type(benchmarking.benchmarker) is torch_musa._inductor.utils.TritonBenchmarker
        assert config.compile_threads == 1
        ops = common.get_device_op_overrides("musa")
        assert type(ops) is torch_musa._inductor.codegen.device_op_overrides.MUSADeviceOpOverrides
        assert ops.synchronize() == "torch.musa.synchronize()" and ops.set_device(1) == "torch.musa.set_device(1)"
        names = {}
        exec(ops.import_get_raw_stream_as("raw"), names)
        assert names["raw"](1) == torch_musa.current_stream(1).musa_stream
        assert codecache.CacheBase.get_system()["device"]["name"] == torch_musa.get_device_name(0)
        work = []
        assert benchmarking.benchmarker.benchmark_gpu(lambda: work.append(1), rep=1) >= 0 and work
        """
    )


def test_what_is_not_there_says_so(run):
    run(
        """
        def refused(call, *words):
            try:
                call()
            except Exception as error:
                assert all(word in str(error) for word in words), error
                return
            raise AssertionError(words)

        from torch_musa._inductor.codegen.triton import MUSATritonScheduling
        refused(lambda: MUSATritonScheduling(None), "Triton compiler", "simulated device has no")
        x = torch.ones(2, device="musa")
        with torch._inductor.config.patch(cpp_wrapper=True):
            refused(lambda: torch.compile(lambda x: x + 1)(x), "C++ wrapper", "simulated device has no")
        program = torch.export.export(torch.nn.Linear(2, 2).musa(), (x,))
        refused(lambda: torch._inductor.aoti_compile_and_package(program), "C++ wrapper", "simulated device has no")
        refused(lambda: torch_musa._inductor.package.load_package("x.pt2", "musa"), "AOTInductor")
        kernel = torch_musa._MUSAC._sim_kernel
        refused(lambda: kernel("k", 0, "p", None), "address")
        refused(lambda: kernel("k", 1, "x", None), "kinds")
        made = kernel("k", 1, "pi", None)
        refused(lambda: made(x), "takes 2 arguments, not 1")
        refused(lambda: made(1, 2), "argument 1 must be a tensor")
        refused(lambda: made(x, "2"), "int")
        refused(lambda: made(x, 2, key=3), "keyword")
        """
    )
