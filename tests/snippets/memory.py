"""Memory: statistics, limits, the caching allocator, pools."""

import gc
import pickle
import tempfile
from pathlib import Path

import torch

MIB = 2**20


def _clean():
    gc.collect()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()


def allocated_goes_up_and_down():
    _clean()
    before = torch.cuda.memory_allocated()
    x = torch.empty(4 * MIB, dtype=torch.uint8, device="cuda")
    assert torch.cuda.memory_allocated() - before >= 4 * MIB
    del x
    assert torch.cuda.memory_allocated() == before


def reserved_stays_until_the_cache_is_emptied():
    _clean()
    x = torch.empty(30 * MIB, dtype=torch.uint8, device="cuda")
    held = torch.cuda.memory_reserved()
    del x
    assert torch.cuda.memory_reserved() == held >= 30 * MIB
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= held - 30 * MIB


def peak():
    _clean()
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    del x
    assert torch.cuda.max_memory_allocated() >= 8 * MIB
    assert torch.cuda.max_memory_reserved() >= 8 * MIB
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() < 8 * MIB


def per_device():
    x = torch.empty(MIB, device="cuda:1")
    assert torch.cuda.memory_allocated(1) >= 4 * MIB
    assert torch.cuda.memory_allocated("cuda:1") == torch.cuda.memory_allocated(torch.device("cuda:1"))
    del x


def statistics():
    stats = torch.cuda.memory_stats()
    for key in ("allocated_bytes.all.current", "reserved_bytes.all.peak", "active.small_pool.allocated", "num_ooms"):
        assert isinstance(stats[key], int), key
    assert torch.cuda.memory_allocated() == stats["allocated_bytes.all.current"]
    nested = torch.cuda.memory_stats_as_nested_dict()
    assert nested["allocated_bytes"]["all"]["current"] == stats["allocated_bytes.all.current"]
    torch.cuda.reset_accumulated_memory_stats()
    assert torch.cuda.memory_stats()["allocation.all.allocated"] == 0


def summary():
    text = torch.cuda.memory_summary()
    assert "Allocated memory" in text and "|" in text
    assert len(torch.cuda.memory_summary(abbreviated=True)) < len(text)


def free_and_total():
    free, total = torch.cuda.mem_get_info()
    assert 0 < free <= total == torch.cuda.get_device_properties(0).total_memory or free < total
    assert len(torch.cuda.mem_get_info("cuda:1")) == 2


def used():
    assert torch.cuda.device_memory_used() >= 0


def deprecated_aliases():
    assert torch.cuda.memory_cached() == torch.cuda.memory_reserved()
    assert torch.cuda.max_memory_cached() == torch.cuda.max_memory_reserved()
    torch.cuda.reset_max_memory_allocated()
    torch.cuda.reset_max_memory_cached()


def fraction():
    before = torch.cuda.get_per_process_memory_fraction()
    torch.cuda.set_per_process_memory_fraction(0.5)
    assert torch.cuda.get_per_process_memory_fraction() == 0.5
    torch.cuda.set_per_process_memory_fraction(before)
    for wrong in (-0.1, 1.1):
        try:
            torch.cuda.set_per_process_memory_fraction(wrong)
        except ValueError:
            pass
        else:
            raise AssertionError


def out_of_memory_is_an_exception_to_recover_from():
    _clean()
    total = torch.cuda.get_device_properties(0).total_memory
    try:
        torch.empty(2 * total, dtype=torch.uint8, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        assert "out of memory" in str(error)
    else:
        raise AssertionError
    assert torch.ones(10, device="cuda").sum().item() == 10


def out_of_memory_classes():
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    assert issubclass(torch.cuda.OutOfMemoryError, RuntimeError)


def caching_allocator_by_hand():
    before = torch.cuda.memory_allocated()
    pointer = torch.cuda.caching_allocator_alloc(MIB)
    assert pointer and torch.cuda.memory_allocated() >= before + MIB
    torch.cuda.caching_allocator_delete(pointer)
    assert torch.cuda.memory_allocated() == before
    with torch.cuda.stream(torch.cuda.Stream()):
        torch.cuda.caching_allocator_delete(torch.cuda.caching_allocator_alloc(512, device=0))


def backend_of_the_allocator():
    assert torch.cuda.get_allocator_backend() in ("native", "cudaMallocAsync")


def snapshot_lists_segments():
    x = torch.empty(MIB, device="cuda")
    segments = torch.cuda.memory_snapshot()
    assert any(block["state"].startswith("active") for segment in segments for block in segment["blocks"])
    assert {"device", "address", "total_size", "allocated_size", "segment_type"} <= segments[0].keys()
    del x


def pool():
    own = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(own):
        x = torch.empty(MIB, device="cuda")
    assert len(own.id) == 2
    assert x.sum().is_cuda


def pool_context():
    if hasattr(torch.cuda, "MemPoolContext"):  # torch 2.7
        own = torch.cuda.MemPool()
        context = torch.cuda.memory.MemPoolContext(own)
        assert torch.cuda.MemPoolContext.active_pool().id == own.id
        del context
        assert torch.cuda.MemPoolContext.active_pool() is None


def host_memory_statistics():
    x = torch.empty(1024, pin_memory=True)
    assert isinstance(torch.cuda.host_memory_stats(), dict)
    assert isinstance(torch.cuda.host_memory_stats_as_nested_dict(), dict)
    torch.cuda.reset_peak_host_memory_stats()
    torch.cuda.reset_accumulated_host_memory_stats()
    assert x.is_pinned()


def list_processes():
    assert isinstance(torch.cuda.list_gpu_processes(), str)


def pinned_memory():
    x = torch.arange(8).pin_memory()
    y = torch.empty(8, dtype=torch.int64, pin_memory=True)
    assert x.is_pinned() and y.is_pinned() and not torch.zeros(1).is_pinned()
    y.copy_(x.to("cuda", non_blocking=True), non_blocking=True)
    torch.cuda.synchronize()
    assert y.tolist() == list(range(8))


def storage_of_a_tensor():
    x = torch.zeros(4, device="cuda")
    assert x.untyped_storage().device == x.device and x.untyped_storage().nbytes() == 16
    assert x.storage().is_cuda if hasattr(x.storage(), "is_cuda") else True


def resized_storage_frees_memory():
    x = torch.empty(8 * MIB, dtype=torch.uint8, device="cuda")
    before = torch.cuda.memory_allocated()
    x.untyped_storage().resize_(0)
    assert torch.cuda.memory_allocated() <= before - 8 * MIB


def history():
    torch.cuda.memory._record_memory_history(max_entries=100)
    try:
        x = torch.empty(MIB, device="cuda")
        del x
        found = torch.cuda.memory._snapshot()
        assert found["segments"] is not None and "device_traces" in found
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "snapshot.pickle"
            torch.cuda.memory._dump_snapshot(str(path))
            assert "segments" in pickle.loads(path.read_bytes())
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def an_allocator_in_use_cannot_be_exchanged():
    x = torch.zeros(1, device="cuda")
    try:
        torch.cuda.memory.change_current_allocator(object())
    except (RuntimeError, TypeError, AttributeError):
        pass
    else:
        raise AssertionError
    assert torch.cuda.change_current_allocator is torch.cuda.memory.change_current_allocator
    assert x.item() == 0
