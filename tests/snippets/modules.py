"""Modules, optimizers, data loading, graphs, profiling and the smaller parts of torch.cuda."""

import warnings

import torch
import torch.cuda.comm
from torch import nn
from torch.nn import functional as F
from torch.nn.parallel import comm


def module_to_device():
    model = nn.Linear(2, 2)
    assert model.cuda() is model and model.weight.is_cuda
    assert not model.cpu().weight.is_cuda
    assert model.to("cuda:1").weight.get_device() == 1
    assert model.to(device="cuda", dtype=torch.float16).weight.dtype == torch.float16


def module_made_on_the_device():
    assert nn.Linear(2, 2, device="cuda").weight.is_cuda
    assert nn.Embedding(3, 2, device=torch.device("cuda:1")).weight.get_device() == 1
    with torch.device("meta"):
        model = nn.Linear(2, 2)
    assert model.to_empty(device="cuda").weight.is_cuda


def buffers_move_too():
    model = nn.BatchNorm1d(3).cuda()
    assert model.running_mean.is_cuda and model.num_batches_tracked.is_cuda


def state_dicts_cross():
    a, b = nn.Linear(2, 2).cuda(), nn.Linear(2, 2)
    b.load_state_dict(a.state_dict())
    assert torch.equal(b.weight, a.weight.cpu())


def training_step():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).cuda()
    optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
    x, y = torch.randn(32, 4, device="cuda"), torch.randn(32, 1, device="cuda")
    losses = []
    for _ in range(20):
        optimizer.zero_grad(set_to_none=True)
        loss = F.mse_loss(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0]


def optimizers():
    for options in ({"foreach": True}, {"foreach": False}, {"fused": True}):
        weight = torch.ones(3, device="cuda", requires_grad=True)
        optimizer = torch.optim.AdamW([weight], lr=0.1, **options)
        weight.sum().backward()
        optimizer.step()
        assert (weight < 1).all()
        assert optimizer.state[weight]["exp_avg"].is_cuda


def convolution():
    x = torch.randn(2, 3, 8, 8, device="cuda", requires_grad=True)
    y = nn.Conv2d(3, 4, 3, padding=1).cuda()(x)
    y.mean().backward()
    assert y.shape == (2, 4, 8, 8) and x.grad.is_cuda
    assert y.contiguous(memory_format=torch.channels_last).is_contiguous(memory_format=torch.channels_last)


def recurrent_network():
    model = nn.LSTM(3, 5, batch_first=True).cuda()
    out, (h, c) = model(torch.randn(2, 4, 3, device="cuda"))
    assert out.shape == (2, 4, 5) and h.is_cuda and c.is_cuda
    model.flatten_parameters()


def packed_sequences():
    packed = nn.utils.rnn.pack_padded_sequence(torch.randn(3, 2, 4), torch.tensor([3, 2])).cuda()
    assert packed.is_cuda
    out, _ = nn.GRU(4, 2).cuda()(packed)
    assert out.data.is_cuda


def attention():
    q = torch.randn(1, 2, 5, 8, device="cuda", requires_grad=True)
    out = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    out.sum().backward()
    assert out.shape == q.shape and q.grad.is_cuda


def transformer_layer():
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).cuda()
    x = torch.randn(2, 3, 8, device="cuda")
    assert layer(x).is_cuda
    layer.eval()
    with torch.inference_mode():
        assert layer(x).shape == x.shape


def losses():
    logits = torch.randn(4, 3, device="cuda", requires_grad=True)
    F.cross_entropy(logits, torch.tensor([0, 1, 2, 0], device="cuda")).backward()
    assert logits.grad.is_cuda
    probabilities = logits.detach().log_softmax(-1).unsqueeze(1)
    assert F.ctc_loss(probabilities, torch.ones(1, 2, dtype=torch.long, device="cuda"), [4], [2]).is_cuda


def data_loader_with_pinned_memory():
    data = torch.utils.data.TensorDataset(torch.arange(8.0), torch.arange(8))
    for x, y in torch.utils.data.DataLoader(data, batch_size=4, pin_memory=True):
        assert x.is_pinned()
        assert x.cuda(non_blocking=True).sum().is_cuda and y.to("cuda", non_blocking=True).is_cuda


def data_parallel():
    model = nn.DataParallel(nn.Linear(2, 3).cuda(), device_ids=[0, 1])
    out = model(torch.ones(4, 2, device="cuda"))
    assert out.shape == (4, 3) and out.get_device() == 0
    out.sum().backward()
    assert model.module.weight.grad.is_cuda


def scatter_and_gather():
    parts = torch.cuda.comm.scatter(torch.arange(4, device="cuda:0"), [0, 1])
    assert [part.get_device() for part in parts] == [0, 1]
    assert torch.cuda.comm.gather(parts, destination=0).tolist() == [0, 1, 2, 3]


def broadcast_and_reduce():
    copies = torch.cuda.comm.broadcast(torch.ones(2, device="cuda:0"), [0, 1])
    assert [copy.get_device() for copy in copies] == [0, 1]
    assert torch.cuda.comm.reduce_add(copies, destination=0).tolist() == [2.0, 2.0]
    several = comm.broadcast_coalesced([torch.ones(1, device="cuda:0"), torch.zeros(2, device="cuda:0")], [0, 1])
    assert len(several) == 2 and several[1][1].get_device() == 1
    total = torch.cuda.comm.reduce_add_coalesced([list(part) for part in several], 0)
    assert total[0].tolist() == [2.0]


def nccl_version():
    assert isinstance(torch.cuda.nccl.version(), tuple)


def captured_graph():
    x = torch.ones(4, device="cuda")
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(2):
            y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = x * 2 + 1
    x.fill_(10)
    graph.replay()
    torch.cuda.synchronize()
    assert y.tolist() == [21.0] * 4
    graph.reset()


def graphs_share_a_pool():
    x = torch.ones(2, device="cuda")
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(first):
        y = x + 1
    with torch.cuda.graph(second, pool=first.pool()):
        z = y * 10
    x.fill_(4)
    first.replay()
    second.replay()
    assert z.tolist() == [50.0, 50.0]


def graph_pool_handle():
    pool = torch.cuda.graph_pool_handle()
    graph = torch.cuda.CUDAGraph()
    x = torch.zeros(1, device="cuda")
    with torch.cuda.graph(cuda_graph=graph, pool=pool, capture_error_mode="thread_local"):
        assert torch.cuda.is_current_stream_capturing()
        x += 1
    assert not torch.cuda.is_current_stream_capturing()
    graph.replay()
    graph.replay()
    assert x.item() == 2


def graphed_callables():
    model = nn.Linear(3, 2).cuda()
    x = torch.randn(4, 3, device="cuda", requires_grad=True)
    graphed = torch.cuda.make_graphed_callables(model, (x,))
    fresh = torch.randn(4, 3, device="cuda", requires_grad=True)
    out = graphed(fresh)
    out.sum().backward()
    assert torch.allclose(out, F.linear(fresh, model.weight, model.bias), atol=1e-5)
    assert fresh.grad is not None


def random_numbers_under_replay():
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        x = torch.rand(4, device="cuda")
    graph.replay()
    a = x.clone()
    graph.replay()
    assert not torch.equal(a, x)


def ranges_for_profilers():
    torch.cuda.nvtx.range_push("outer")
    torch.cuda.nvtx.mark("here")
    torch.cuda.nvtx.range_pop()
    handle = torch.cuda.nvtx.range_start("work")
    torch.cuda.nvtx.range_end(handle)
    with torch.cuda.nvtx.range("block {}", "x"):
        pass


def profiling():
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        torch.ones(8, 8, device="cuda").mm(torch.ones(8, 8, device="cuda"))
    assert any("mm" in event.key for event in profiler.key_averages())


def runtime_functions():
    runtime = torch.cuda.cudart()
    free, total = runtime.cudaMemGetInfo(0)
    assert 0 < free <= total
    assert isinstance(runtime.cudaGetErrorString(runtime.cudaError.success), str)
    torch.cuda.check_error(0)


def a_runtime_error_is_raised():
    try:
        torch.cuda.check_error(2)
    except torch.cuda.CudaError as error:
        assert isinstance(error, RuntimeError)
    else:
        raise AssertionError


def registered_host_memory():
    x = torch.zeros(1024)
    runtime = torch.cuda.cudart()
    assert int(runtime.cudaHostRegister(x.data_ptr(), x.numel() * 4, 0)) == 0
    assert x.is_pinned()
    assert int(runtime.cudaHostUnregister(x.data_ptr())) == 0


def tunable_operators_are_off():
    assert torch.cuda.tunable.is_enabled() is False
    assert isinstance(torch.cuda.tunable.get_results(), tuple)
    torch.cuda.tunable.set_max_tuning_iterations(5)
    assert torch.cuda.tunable.get_max_tuning_iterations() == 5


def accelerator():
    assert torch.accelerator.is_available() and torch.accelerator.device_count() == torch.cuda.device_count()
    assert torch.accelerator.current_accelerator() == torch.device("cuda")
    torch.accelerator.set_device_index(1)
    assert torch.accelerator.current_device_index() == torch.cuda.current_device() == 1
    torch.accelerator.set_device_index(0)
    torch.accelerator.synchronize()


def accelerator_streams():
    stream = torch.Stream(device="cuda:0")
    before = torch.accelerator.current_stream()
    torch.accelerator.set_stream(stream)
    try:
        assert torch.accelerator.current_stream() == stream
    finally:
        torch.accelerator.set_stream(before)


def accelerator_device_index():
    if hasattr(torch.accelerator, "device_index"):  # torch 2.8 and later
        with torch.accelerator.device_index(1):
            assert torch.cuda.current_device() == 1


def accelerator_memory():
    x = torch.empty(2**20, device="cuda")
    assert torch.accelerator.memory_allocated() >= 2**22 <= torch.accelerator.max_memory_allocated()
    assert torch.accelerator.memory_reserved() <= torch.accelerator.max_memory_reserved()
    assert "allocated_bytes.all.current" in torch.accelerator.memory_stats()
    torch.accelerator.reset_peak_memory_stats()
    torch.accelerator.reset_accumulated_memory_stats()
    free, total = torch.accelerator.get_memory_info()
    assert free <= total
    del x
    torch.accelerator.empty_cache()


def accelerator_later_names():
    if hasattr(torch.accelerator, "empty_host_cache"):
        torch.accelerator.empty_host_cache()
    if hasattr(torch.accelerator, "get_device_capability"):
        assert "supported_dtypes" in torch.accelerator.get_device_capability()


def accelerator_old_names():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.accelerator.set_device_idx(0)
        assert torch.accelerator.current_device_idx() == 0


def attention_backends():
    from torch.nn.attention import SDPBackend, sdpa_kernel

    q = torch.randn(1, 1, 4, 8, device="cuda")
    with sdpa_kernel(SDPBackend.MATH):
        assert torch.backends.cuda.math_sdp_enabled() and not torch.backends.cuda.flash_sdp_enabled()
        F.scaled_dot_product_attention(q, q, q)
    for name in ("flash", "mem_efficient", "math", "cudnn"):
        before = getattr(torch.backends.cuda, f"{name}_sdp_enabled")()
        getattr(torch.backends.cuda, f"enable_{name}_sdp")(before)
    assert isinstance(torch.backends.cuda.is_flash_attention_available(), bool)
    before = torch.backends.cuda.fp16_bf16_reduction_math_sdp_allowed()
    torch.backends.cuda.allow_fp16_bf16_reduction_math_sdp(before)


def attention_of_these_shapes():
    q = torch.randn(1, 1, 4, 8, device="cuda")
    parameters = torch.backends.cuda.SDPAParams(q, q, q, None, 0.0, False, False)
    for ask in ("can_use_flash_attention", "can_use_efficient_attention", "can_use_cudnn_attention"):
        assert isinstance(getattr(torch.backends.cuda, ask)(parameters), bool)


def convolution_switches():
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=False):
        assert torch.backends.cudnn.benchmark
    torch.backends.cudnn.set_flags(True)
    assert isinstance(torch.backends.cudnn.is_available(), bool)
    assert torch.backends.cudnn.version() is None or torch.backends.cudnn.version() > 0
    assert isinstance(torch.backends.cudnn.is_acceptable(torch.zeros(1, device="cuda")), bool)


def fourier_plan_cache():
    cache = torch.backends.cuda.cufft_plan_cache
    before = cache.max_size
    cache.max_size = 16
    assert cache.max_size == 16 and cache[0].size >= 0
    cache.max_size = before
    cache.clear()


def preferred_libraries():
    assert torch.backends.cuda.preferred_linalg_library("default") == torch.backends.cuda.preferred_linalg_library()
    torch.backends.cuda.preferred_blas_library("default")


def deterministic_algorithms():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        x = torch.zeros(3, device="cuda").index_add_(
            0, torch.tensor([0, 0], device="cuda"), torch.ones(2, device="cuda")
        )
        assert x.tolist() == [2.0, 0.0, 0.0]
    finally:
        torch.use_deterministic_algorithms(False)


def compiled_function():
    @torch.compile(backend="eager", fullgraph=True)
    def double(x):
        return x * 2 + torch.ones(1, device="cuda")

    assert double(torch.ones(2, device="cuda")).tolist() == [3.0, 3.0]


def custom_operator():
    library = torch.library.Library("snippets", "FRAGMENT")
    library.define("twice(Tensor x) -> Tensor")
    library.impl("twice", lambda x: x + x, "CUDA")
    assert torch.ops.snippets.twice(torch.ones(2, device="cuda")).tolist() == [2.0, 2.0]
    library._destroy()


def hooks_for_saved_tensors():
    x = torch.ones(3, device="cuda", requires_grad=True)
    with torch.autograd.graph.save_on_cpu(pin_memory=True):
        y = (x * x).sum()
    y.backward()
    assert x.grad.tolist() == [2.0] * 3


def distributions():
    d = torch.distributions.Normal(torch.zeros(2, device="cuda"), torch.ones(2, device="cuda"))
    assert d.sample().is_cuda and d.log_prob(torch.zeros(2, device="cuda")).is_cuda


def weight_norms_and_hooks():
    model = nn.utils.parametrizations.spectral_norm(nn.Linear(3, 3)).cuda()
    seen = []
    model.register_forward_hook(lambda module, args, out: seen.append(out.is_cuda))
    model(torch.ones(1, 3, device="cuda"))
    assert seen == [True]
