"""torch.cuda.memory: statistics that can be believed, aliases, pools, the allocator by hand."""

import pickle

import pytest
import torch
import torch_musa

import torchada

MIB = 2**20


@pytest.fixture
def clean():
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    torch.cuda.reset_accumulated_memory_stats()


@pytest.mark.parametrize("device", [None, 0, "cuda:0", "cuda", torch.device("cuda:0")])
def test_allocated_memory(clean, device):
    before = torch.cuda.memory_allocated(device)
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated(device) - before == 4 * MIB
    assert torch.cuda.max_memory_allocated(device) >= before + 4 * MIB
    assert torch.cuda.memory_reserved(device) >= torch.cuda.memory_allocated(device)
    assert torch.cuda.max_memory_reserved(device) >= torch.cuda.memory_reserved(device)
    del x
    assert torch.cuda.memory_allocated(device) == before
    assert torch.cuda.max_memory_allocated(device) >= before + 4 * MIB


def test_devices_are_counted_apart(clean):
    before = torch.cuda.memory_allocated(1)
    other = torch.cuda.memory_allocated(0)
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
    assert torch.cuda.memory_allocated("cuda:1") == before + MIB
    assert torch.cuda.memory_allocated(0) == other
    del x


def test_peaks_reset(clean):
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    del x
    peak = torch.cuda.max_memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < peak


def test_statistics():
    stats = torch.cuda.memory_stats()
    for key in ("allocated_bytes.all.current", "reserved_bytes.all.peak", "num_ooms", "num_alloc_retries"):
        assert key in stats
    assert list(stats) == sorted(stats)
    nested = torch.cuda.memory_stats_as_nested_dict("cuda:0")
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    with pytest.raises(ValueError, match="but got: cpu"):
        torch.cuda.memory_stats("cpu")


def test_empty_cache_gives_memory_back(clean):
    x = torch.empty(64 * MIB, dtype=torch.uint8, device="cuda")
    del x
    reserved = torch.cuda.memory_reserved()
    free = torch.cuda.mem_get_info()[0]
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= reserved
    assert torch.cuda.mem_get_info()[0] >= free


def test_memory_summary():
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda:1")
    text = torch.cuda.memory_summary("cuda:1")
    assert "PyTorch CUDA memory summary, device ID 1" in text
    assert "from large pool" in text and "Oversize" in text
    short = torch.cuda.memory_summary(torch.device("cuda:1"), abbreviated=True)
    assert "from large pool" not in short and "CUDA OOMs" in short
    del x


def test_mem_get_info():
    for device in (None, 1, "cuda:1", torch.device("cuda:1")):
        free, total = torch.cuda.mem_get_info(device)
        assert 0 < free <= total
    assert torch.cuda.mem_get_info(1)[1] == torch.cuda.get_device_properties(1).total_memory


@pytest.mark.parametrize(
    "name,now",
    [
        ("memory_cached", "memory_reserved"),
        ("max_memory_cached", "max_memory_reserved"),
        ("reset_max_memory_allocated", "reset_peak_memory_stats"),
        ("reset_max_memory_cached", "reset_peak_memory_stats"),
    ],
)
def test_deprecated_aliases_warn_and_work(name, now):
    held = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    with pytest.warns(FutureWarning, match=now) as caught:
        answer = getattr(torch.cuda, name)("cuda:0")
    assert caught[0].filename == __file__
    if now.startswith("reset"):
        assert answer is None
        assert torch.cuda.max_memory_allocated() == torch.cuda.memory_allocated()
    else:
        assert answer == getattr(torch.cuda, now)("cuda:0") >= held.numel()


def test_out_of_memory():
    too_much = torch.cuda.get_device_properties(0).total_memory * 4
    with pytest.raises(torch.cuda.OutOfMemoryError):
        torch.empty(too_much, dtype=torch.uint8, device="cuda")
    assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)
    torch.ones(2, device="cuda").sum().item()  # and the device still works


def test_memory_fraction():
    assert torch.cuda.get_per_process_memory_fraction() == 1.0
    total = torch.cuda.mem_get_info("cuda:1")[1]
    try:
        torch.cuda.set_per_process_memory_fraction(0.25, "cuda:1")
        assert torch.cuda.get_per_process_memory_fraction(torch.device("cuda:1")) == 0.25
        assert torch.cuda.get_per_process_memory_fraction(0) == 1.0
        with pytest.raises(torch.cuda.OutOfMemoryError):
            torch.empty(total // 2, dtype=torch.uint8, device="cuda:1")
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, 1)
    with pytest.raises(TypeError, match="must be `float`"):
        torch.cuda.set_per_process_memory_fraction(1)
    with pytest.raises(ValueError, match="Allowed range"):
        torch.cuda.set_per_process_memory_fraction(1.5)
    assert torch.cuda.get_per_process_memory_fraction() == 1.0


def test_caching_allocator_by_hand():
    before = torch.cuda.memory_allocated(1)
    address = torch.cuda.caching_allocator_alloc(MIB, "cuda:1")
    assert isinstance(address, int) and address
    assert torch.cuda.memory_allocated(1) == before + MIB
    torch.cuda.caching_allocator_delete(address)
    assert torch.cuda.memory_allocated(1) == before
    stream = torch.cuda.Stream()
    address = torch.cuda.caching_allocator_alloc(MIB, stream=stream)
    torch.cuda.caching_allocator_delete(address)
    with pytest.raises(TypeError, match="Invalid type for stream"):
        torch.cuda.caching_allocator_alloc(MIB, stream="a")


def test_caching_allocator_cannot_be_switched_off():
    assert torch.cuda.caching_allocator_enable() is None
    for use in (lambda: torch.cuda.caching_allocator_enable(False), lambda: torch.cuda.caching_allocator_disabled()):
        with pytest.raises(torchada.NotOnMusa, match="PYTORCH_NO_MUSA_MEMORY_CACHING"):
            use()


def test_host_memory_statistics_are_empty():
    assert torch.cuda.host_memory_stats() == {}
    assert torch.cuda.host_memory_stats_as_nested_dict() == {}
    assert torch.cuda.reset_peak_host_memory_stats() is None
    assert torch.cuda.reset_accumulated_host_memory_stats() is None


def test_list_gpu_processes():
    assert "please install nvidia-ml-py" in torch.cuda.list_gpu_processes()


def test_memory_snapshot():
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda")
    segments = torch.cuda.memory_snapshot()
    assert any(segment["total_size"] >= MIB for segment in segments)
    assert torch.cuda.memory_snapshot(None) == torch.cuda.memory_snapshot(mempool_id=None)
    with pytest.raises(torchada.NotOnMusa, match="no pool id"):
        torch.cuda.memory_snapshot((0, 1))
    del x


def test_memory_history(tmp_path, monkeypatch):
    """The arguments reach torch_musa's bindings; what these lack is refused, not dropped."""
    calls = []
    monkeypatch.setattr(torch_musa._MUSAC, "_musa_record_memory_history", lambda *args: calls.append(args))
    monkeypatch.setattr(torch_musa._MUSAC, "_musa_record_memory_history_legacy", lambda *args: calls.append(args))
    torch.cuda.memory._record_memory_history(max_entries=100)
    torch.cuda.memory._record_memory_history("state", stacks="python", clear_history=False)
    torch.cuda.memory._record_memory_history(enabled=None)
    torch.cuda.memory._record_memory_history(True, trace_alloc_max_entries=10)
    torch.cuda.memory._record_memory_history(False)
    assert [call[0] for call in calls] == ["all", "state", None, True, False]
    assert calls[0][3] == 100 and calls[1][2] == "python" and calls[3][2] == 10
    for keywords in ({"clear_history": True}, {"skip_actions": ["alloc"]}):
        with pytest.raises(torchada.NotOnMusa, match=next(iter(keywords))):
            torch.cuda.memory._record_memory_history(**keywords)
    with pytest.raises(torchada.NotOnMusa, match="compile_context"):
        torch.cuda.memory._record_memory_history(True, compile_context=True)
    with pytest.raises(TypeError):
        torch.cuda.memory._record_memory_history(nonsense=True)
    assert len(calls) == 5
    file = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    assert "segments" in pickle.loads(file.read_bytes())
    assert "segments" in torch.cuda.memory._snapshot("cuda:0")
    with pytest.raises(torchada.NotOnMusa, match="augment_with_fx_traces"):
        torch.cuda.memory._snapshot(augment_with_fx_traces=True)
    with pytest.raises(torchada.NotOnMusa, match="augment_with_fx_traces"):
        torch.cuda.memory._dump_snapshot(str(file), augment_with_fx_traces=True)


def test_memory_metadata():
    torch.cuda.memory._set_memory_metadata("step 3")
    assert torch.cuda.memory._get_memory_metadata() == "step 3"
    torch.cuda.memory._set_memory_metadata("")
    assert torch.cuda.memory._allocation_traceback(0) is None


def test_renamed_classes():
    assert torch.cuda.CUDAPluggableAllocator is torch_musa.MUSAPluggableAllocator
    assert issubclass(torch.cuda.memory.CUDAPluggableAllocator, torch.cuda.memory._CUDAAllocator)
    assert torch.cuda.memory._cuda_releasePool is torch_musa._MUSAC._musa_releasePool
    assert torch.cuda.memory._cuda_beginAllocateToPool is torch_musa._MUSAC._musa_beginAllocateToPool
    assert torch.cuda.memory._cuda_endAllocateToPool is torch_musa._MUSAC._musa_endAllocateCurrentStreamToPool
    assert torch.cuda.memory._cuda_CUDAAllocator is torch_musa._MUSAC._musa_MUSAAllocator
    assert torch.cuda.get_allocator_backend() == "native"


def test_memory_pools():
    pool = torch.cuda.MemPool(None, False, no_split=False)
    assert isinstance(pool, torch.cuda.memory.MemPool)
    with torch.cuda.use_mem_pool(pool, "cuda:0"):
        x = torch.ones(1000, device="cuda")
    assert x.sum().item() == 1000
    for keywords in ({"use_on_oom": True}, {"no_split": True}):
        with pytest.raises(torchada.NotOnMusa, match=next(iter(keywords))):
            torch.cuda.MemPool(**keywords)
    for name in ("use_count", "snapshot"):
        assert not hasattr(pool, name)
        with pytest.raises(torchada.NotOnMusa, match=name):
            getattr(pool, name)


def test_pickled_by_torch_name():
    for name in ("memory_summary", "memory_snapshot", "set_per_process_memory_fraction", "caching_allocator_alloc"):
        function = getattr(torch.cuda, name)
        assert pickle.loads(pickle.dumps(function)) is function
        assert function.__module__ == "torch.cuda.memory"
