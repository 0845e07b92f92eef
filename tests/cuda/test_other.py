"""Graph names, collectives in one process, nvtx, profiler, tunable, jiterator."""

import inspect
import warnings

import pytest
import torch
import torch.cuda.comm
import torch_musa

import torchada


def test_graph_names():
    assert torch.cuda.CUDAGraph is torch_musa.MUSAGraph is torch.cuda.graphs.CUDAGraph
    assert torch.cuda.graphs._CUDAGraph is torch_musa._MUSAC._MUSAGraph
    assert torch.cuda.graphs._graph_pool_handle is torch_musa._MUSAC._graph_pool_handle
    assert torch.cuda.graphs._cuda_isCurrentStreamCapturing is torch_musa._MUSAC._musa_isCurrentStreamCapturing
    assert torch.cuda.is_current_stream_capturing() is False
    assert issubclass(torch.cuda.graph, torch_musa.graph)
    assert next(iter(inspect.signature(torch.cuda.graph).parameters)) == "cuda_graph"
    for arguments, keywords in (((), {}), ((False,), {}), ((), {"keep_graph": False})):
        assert type(torch.cuda.CUDAGraph(*arguments, **keywords)) is torch_musa.MUSAGraph
    with pytest.raises(torchada.NotOnMusa, match="keep_graph"):
        torch.cuda.CUDAGraph(keep_graph=True)
    for name in ("enable_annotations", "check_input_liveness"):
        with pytest.raises(torchada.NotOnMusa, match=name):
            torch.cuda.graph(None, **{name: True})
    assert "pool" in inspect.signature(torch.cuda.make_graphed_callables).parameters
    assert torch.cuda.make_graphed_callables.__globals__ is vars(torch.cuda.graphs)


def test_nccl_version():
    version = torch.cuda.nccl.version()
    assert isinstance(version, tuple) and all(isinstance(part, (int, str)) for part in version)


def test_comm():
    x = torch.arange(6.0, device="cuda:0")
    copies = torch.cuda.comm.broadcast(x, ["cuda:0", 1])
    assert [copy.device for copy in copies] == [torch.device("cuda:0"), torch.device("cuda:1")]
    assert all(torch.equal(copy.cpu(), x.cpu()) for copy in copies)
    parts = torch.cuda.comm.scatter(x, [0, 1], chunk_sizes=[2, 4])
    assert [part.tolist() for part in parts] == [[0.0, 1.0], [2.0, 3.0, 4.0, 5.0]]
    assert [part.get_device() for part in parts] == [0, 1]
    assert torch.cuda.comm.gather(parts, destination=1).tolist() == x.tolist()
    assert torch.cuda.comm.gather(parts, destination="cpu").device.type == "cpu"
    total = torch.cuda.comm.reduce_add(copies, destination=0)
    assert total.tolist() == (2 * x).tolist() and total.get_device() == 0
    one, two = torch.cuda.comm.broadcast_coalesced([x, x + 1], [0, 1])
    assert two[1].tolist() == (x + 1).tolist() and two[1].get_device() == 1 and one[0].get_device() == 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert torch.cuda.nccl.is_available([x]) is False


def test_comm_into_given_tensors():
    comm = torch.cuda.comm
    x = torch.arange(6.0, device="cuda:0")
    a, b = torch.empty(6, device="cuda:0"), torch.empty(6, device="cuda:1")
    found = comm.broadcast(x, out=[a, b])
    assert found[0] is a and found[1] is b and b.tolist() == x.tolist()
    c, d = torch.empty(2, device="cuda:1"), torch.empty(4, device="cuda:0")
    found = comm.scatter(x, streams=[torch.cuda.Stream(1), None], out=[c, d])
    torch.cuda.synchronize(1)
    assert found[0] is c and [c.tolist(), d.tolist()] == [[0.0, 1.0], [2.0, 3.0, 4.0, 5.0]]
    for out in (torch.empty(6, device="cuda:1"), torch.empty(6)):
        assert comm.gather([c, d], out=out) is out and out.tolist() == x.tolist()
    with pytest.raises(RuntimeError, match=r"CUDA tensors.*index 0"):
        comm.broadcast(x, out=[torch.empty(6)])
    with pytest.raises(RuntimeError, match=r"shape \[6\], got \[1\]"):
        comm.broadcast(x, out=[torch.empty(1, device="cuda")])
    with pytest.raises(RuntimeError, match=r"sum up to 6, got \[2, 2\]"):
        comm.scatter(x, out=[c, c])
    with pytest.raises(RuntimeError, match=r"sum up to 3"):
        comm.gather([c, d], out=torch.empty(3))
    with pytest.raises(RuntimeError, match="Exactly one of 'devices' and 'out'"):
        comm.broadcast(x)
    with pytest.raises(RuntimeError, match="'destination' must not be specified"):
        comm.gather([c, d], destination=0, out=a)


def test_data_parallel():
    model = torch.nn.DataParallel(torch.nn.Linear(4, 2).cuda(), device_ids=[0, 1])
    x = torch.randn(6, 4, device="cuda")
    out = model(x)
    assert out.shape == (6, 2) and out.device == torch.device("cuda:0")
    assert torch.allclose(out.cpu(), model.module(x).cpu(), atol=1e-6)
    out.sum().backward()
    assert model.module.weight.grad is not None


def test_nvtx_ranges_show_in_the_profiler():
    nvtx = torch.cuda.nvtx
    assert nvtx.range_pop() == -2
    assert (nvtx.range_push("outer"), nvtx.range_push("inner")) == (0, 1)
    assert (nvtx.range_pop(), nvtx.range_pop()) == (1, 0)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        nvtx.range_push("my range")
        torch.ones(3) + 1
        nvtx.range_pop()
        with nvtx.range("step {}", 7):
            nvtx.mark("a moment")

        @nvtx.range("decorated")
        def work():
            return torch.ones(2).sum()

        work()
    names = {event.key for event in profile.key_averages()}
    assert {"my range", "step 7", "a moment", "decorated"} <= names
    first, second = nvtx.range_start("a"), nvtx.range_start("b")
    assert first != second
    nvtx.range_end(first)
    nvtx._device_range_end(nvtx._device_range_start("device"))


def test_nvtx_survives_a_profiler_that_starts_in_between():
    nvtx = torch.cuda.nvtx
    nvtx.range_push("before")
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        nvtx.range_push("inside")
        nvtx.range_pop()
        nvtx.range_pop()
    assert nvtx.range_pop() == -2


def test_profiler(monkeypatch):
    from torchada.shims import cuda_runtime

    assert torch.cuda.profiler.check_error is torch.cuda.check_error
    with torch.cuda.profiler.profile():  # for a tool from outside; the simulated device has none
        assert int(torch.cuda.cudart().cudaProfilerStart()) == 0
    monkeypatch.setattr(cuda_runtime, "runtime_library", lambda: None)
    with pytest.raises(torchada.NotOnMusa, match="cudaProfilerStart"):
        torch.cuda.profiler.start()
    calls = []

    class Library:
        def musaProfilerStart(self):
            calls.append("start")
            return 0

        def musaProfilerStop(self):
            calls.append("stop")
            return 0

    monkeypatch.setattr(cuda_runtime, "runtime_library", Library)
    with torch.cuda.profiler.profile():
        calls.append("work")
    assert calls == ["start", "work", "stop"]


def test_tunable_keeps_settings():
    tunable = torch.cuda.tunable
    assert tunable.get_max_tuning_duration() == 30 and tunable.get_max_tuning_iterations() == 100
    try:
        tunable.set_max_tuning_duration(5)
        tunable.set_max_tuning_iterations(7)
        tunable.set_rotating_buffer_size(3)
        tunable.set_filename("results.csv", insert_device_ordinal=True)
        tunable.tuning_enable(False)
        assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (5, 7)
        assert tunable.get_rotating_buffer_size() == 3
        assert tunable.get_filename() == "results0.csv"
        assert tunable.tuning_is_enabled() is False
    finally:
        tunable.set_max_tuning_duration(30)
        tunable.set_max_tuning_iterations(100)
        tunable.set_rotating_buffer_size(-1)
        tunable.set_filename("")
        tunable.tuning_enable()
    assert tunable.tuning_is_enabled() is True
    assert tunable.get_results() == ()
    assert tunable.get_validators() == (("PT_VERSION", torch.__version__.partition("+")[0]),)
    assert tunable.read_file("nowhere.csv") is False
    if hasattr(tunable, "set_numerical_check_tolerances"):
        assert tunable.set_numerical_check_tolerances(False) is None


def test_tunable_refuses_tuning():
    tunable = torch.cuda.tunable
    tunable.enable(False)
    tunable.record_untuned_enable(False)
    assert tunable.is_enabled() is False and tunable.record_untuned_is_enabled() is False
    for use in (tunable.enable, tunable.record_untuned_enable):
        with pytest.raises(torchada.NotOnMusa, match="muBLAS"):
            use()


def test_jiterator():
    code = "template <typename T> T my_kernel(T x, T y) { return x + y; }"
    made = torch.cuda.jiterator._create_jit_fn(code, alpha=1.0)
    several = torch.cuda.jiterator._create_multi_output_jit_fn(code, num_outputs=2)
    for function in (made, several):
        assert isinstance(function, torch.cuda.jiterator._JittedFunction)
        with pytest.raises(torchada.NotOnMusa, match="my_kernel"):
            function(torch.ones(2, device="cuda"), torch.ones(2, device="cuda"))


def test_gds_and_green_contexts_refuse_with_reason():
    with pytest.raises(torchada.NotOnMusa, match="GPUDirect Storage"):
        torch.cuda.gds.GdsFile("file", 0)
    assert torch.cuda.gds.GdsFile.__module__ == "torch.cuda.gds"


@pytest.mark.parametrize(
    "name", ["register_generator_state", "instantiate", "raw_cuda_graph", "raw_cuda_graph_exec", "get_graph_data"]
)
def test_members_of_graphs_that_torch_musa_lacks(name):
    graph = torch.cuda.CUDAGraph()
    assert not hasattr(graph, name)  # as on a torch before it had them
    with pytest.raises(torchada.NotOnMusa, match=rf"CUDAGraph\.{name} is not available on MUSA: .* Instead: "):
        getattr(graph, name)
