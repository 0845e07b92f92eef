"""Private pools of device memory, and the checkpoints of pools that graph trees use."""

import ctypes
import gc
import threading

import pytest
import torch
import torch_musa

CORE = torch_musa._MUSAC
MIB = 1 << 20
MUSA = "musa:0"


def make(size=3 * MIB):
    return torch.empty(size, dtype=torch.uint8, device=MUSA)


def segment_of(x):
    (segment,) = [
        s for s in torch_musa.memory_snapshot() if s["address"] <= x.data_ptr() < s["address"] + s["total_size"]
    ]
    return segment


@pytest.fixture(autouse=True)
def clean():
    torch_musa._lazy_init()
    gc.collect()
    torch_musa.empty_cache()
    yield
    gc.collect()
    torch_musa.empty_cache()


def test_a_pool_keeps_its_memory_to_itself():
    pool, other = torch_musa.MemPool(), torch_musa.MemPool()
    assert pool.id != other.id and pool.allocator is None
    with torch_musa.use_mem_pool(pool):
        x = make()
    address = x.data_ptr()
    del x
    assert make().data_ptr() != address
    with torch_musa.use_mem_pool(other):
        assert make().data_ptr() != address
    torch_musa.empty_cache()  # not of a pool that is alive
    with torch_musa.use_mem_pool(pool):
        assert make().data_ptr() == address


def test_memory_goes_back_when_the_pool_is_deleted():
    reserved = torch_musa.memory_reserved(0)
    pool = torch_musa.MemPool()
    with torch_musa.use_mem_pool(pool):
        x, y = make(), make(30 * MIB)
    del y
    assert torch_musa.memory_reserved(0) == reserved + 50 * MIB
    del pool
    gc.collect()
    assert torch_musa.memory_reserved(0) == reserved + 20 * MIB  # x lives on
    x.fill_(3)
    assert x.min().item() == 3
    del x
    torch_musa.empty_cache()
    assert torch_musa.memory_reserved(0) == reserved


def test_the_active_pool():
    pool, inner = torch_musa.MemPool(), torch_musa.MemPool()
    assert torch_musa.MemPoolContext.active_pool() is None
    context = torch_musa.MemPoolContext(pool)
    assert torch_musa.MemPoolContext.active_pool() is pool
    second = torch_musa.MemPoolContext(inner)
    assert torch_musa.MemPoolContext.active_pool() is inner
    del second
    assert torch_musa.MemPoolContext.active_pool() is pool
    del context
    assert torch_musa.MemPoolContext.active_pool() is None
    with pytest.raises(TypeError):
        torch_musa.MemPoolContext(3)


def test_an_exception_ends_the_use():
    pool = torch_musa.MemPool()
    with pytest.raises(KeyError), torch_musa.use_mem_pool(pool):
        raise KeyError
    with torch_musa.use_mem_pool(pool):
        x = make()
    assert segment_of(make())["address"] != segment_of(x)["address"]


def test_a_pool_for_one_stream():
    pool = torch_musa.MemPool()
    stream = torch_musa.Stream(0)
    with torch_musa.stream(stream):
        CORE._musa_beginAllocateCurrentStreamToPool(0, pool.id)
        inside = make()
    outside = make()
    CORE._musa_endAllocateCurrentStreamToPool(0, pool.id)
    CORE._musa_releasePool(0, pool.id)
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, {inside.data_ptr()})
    assert not CORE._musa_checkPoolLiveAllocations(0, pool.id, {inside.data_ptr(), outside.data_ptr()})
    assert not CORE._musa_checkPoolLiveAllocations(0, pool.id, set())


def test_another_thread_allocates_from_the_pool_too():
    pool, made = torch_musa.MemPool(), []
    with torch_musa.use_mem_pool(pool):  # torch_musa's has no choice of the thread
        thread = threading.Thread(target=lambda: made.append(make()))
        thread.start()
        thread.join()
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, {made[0].data_ptr()})


def test_pools_of_another_device():
    pool = torch_musa.MemPool()
    with torch_musa.use_mem_pool(pool, "musa:1"):
        x, y = torch.ones(4, device="musa:1"), make()
    assert CORE._musa_checkPoolLiveAllocations(1, pool.id, {x.data_ptr()})
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, set()) and y.numel()


def test_wrong_use():
    pool = torch_musa.MemPool()
    with pytest.raises(RuntimeError, match="not currently recording"):
        CORE._musa_endAllocateCurrentStreamToPool(0, pool.id)
    with torch_musa.use_mem_pool(pool), pytest.raises(RuntimeError, match="already recording"):
        CORE._musa_beginAllocateToPool(0, pool.id)
    with pytest.raises(RuntimeError, match="not in use"):
        CORE._musa_releasePool(0, (0, 1 << 40))
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        CORE._musa_beginAllocateToPool(7, pool.id)
    for call in (lambda: CORE._musa_beginAllocateToPool(0, 3), lambda: torch_musa.MemPool(3)):
        with pytest.raises(TypeError):
            call()
    with pytest.raises(RuntimeError, match="initialised already"):
        pool.__init__()


def test_out_of_memory_names_private_pools():
    pool = torch_musa.MemPool()
    with torch_musa.use_mem_pool(pool):
        x = make()
    with pytest.raises(torch.OutOfMemoryError, match=r"with 3\.00 MiB allocated in private pools"):
        make(torch_musa.mem_get_info(0)[1])
    del x


def test_an_allocator_for_a_pool(library):
    mine = torch_musa.MUSAPluggableAllocator(str(library), "take", "give")
    count = ctypes.c_long.in_dll(ctypes.CDLL(str(library)), "live")
    start = count.value
    pool = torch_musa.MemPool(mine.allocator())
    assert pool.allocator is not None
    with torch_musa.use_mem_pool(pool):
        x, y = make(), make()
    assert count.value == start + 1  # a segment
    assert (x.fill_(2) + y.fill_(3)).min().item() == 5
    make()
    assert count.value == start + 1
    del x, y, pool
    gc.collect()
    assert count.value == start


# ---- checkpoints --------------------------------------------------------------------------------------


def impl(x):
    return x.untyped_storage()._cdata


def test_a_pool_goes_back_to_a_checkpoint():
    pool = torch_musa.MemPool()
    with torch_musa.use_mem_pool(pool):
        a, b, c = make(), make(5 * MIB), make(700)
        addresses = {t.data_ptr() for t in (a, b, c)}
        before = CORE._musa_getCheckpointState(0, pool.id)
        assert isinstance(before, CORE._musa_MUSAAllocator_AllocatorState)
        allocated = torch_musa.memory_allocated(0)
        extra = make(MIB)
        gone = b.data_ptr()
        del b
    stale = [impl(t) for t in (a, c, extra)]
    CORE._musa_setCheckpointPoolState(0, before, stale, [impl(a), impl(c)])
    # All that was alive at the checkpoint is; b's block has no tensor any more and waits for raw_delete.
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, addresses)
    assert torch_musa.memory_allocated(0) == allocated
    CORE._musa_musaCachingAllocator_raw_delete(gone)
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, addresses - {gone})
    assert CORE._has_Standard_Deleter(impl(a)) and not CORE._has_Standard_Deleter(impl(extra))
    assert torch_musa.memory_allocated(0) == allocated - 5 * MIB
    del extra
    a.fill_(1), c.fill_(2)
    del a, c
    assert CORE._musa_checkPoolLiveAllocations(0, pool.id, set())


def test_wrong_checkpoints():
    pool = torch_musa.MemPool()
    with torch_musa.use_mem_pool(pool):
        x = make()
    state = CORE._musa_getCheckpointState(0, pool.id)
    with torch_musa.use_mem_pool(pool):
        y = make()
    with pytest.raises(RuntimeError, match="Could not find private pool"):
        CORE._musa_getCheckpointState(0, (0, 1 << 40))
    with pytest.raises(RuntimeError, match="Could not find private pool"):
        CORE._musa_setCheckpointPoolState(1, state, [], [])
    with pytest.raises(TypeError):
        CORE._musa_setCheckpointPoolState(0, 3, [], [])
    with pytest.raises(ValueError, match="null"):
        CORE._musa_setCheckpointPoolState(0, state, [0], [])
    with pytest.raises(TypeError, match="No constructor"):
        CORE._musa_MUSAAllocator_AllocatorState()
    assert x.numel() == y.numel()


def test_a_storage_gives_up_its_memory():
    x = make()
    allocated = torch_musa.memory_allocated(0)
    CORE._free_And_Remove_DeleterFn(impl(x))
    assert torch_musa.memory_allocated(0) == allocated - 3 * MIB
    with pytest.raises(RuntimeError, match="Expected standard deleter"):
        CORE._free_And_Remove_DeleterFn(impl(x))
    del x
    assert torch_musa.memory_allocated(0) == allocated - 3 * MIB


def test_a_storage_that_must_not_be_read():
    x = make(8)
    CORE._set_storage_access_error_msg(x, "this was overwritten")
    with pytest.raises(RuntimeError, match="this was overwritten"):
        x.data_ptr()
    with pytest.raises(TypeError):
        CORE._set_storage_access_error_msg("x", "text")


def test_addresses_are_compared():
    tensors = [make(8), make(8), torch.ones(2)]
    pointers = [t.data_ptr() for t in tensors]
    assert CORE._tensors_data_ptrs_at_indices_equal(tensors, pointers, [0, 1, 2])
    pointers[1] += 1
    assert CORE._tensors_data_ptrs_at_indices_equal(tensors, pointers, [0, 2])
    assert not CORE._tensors_data_ptrs_at_indices_equal(tensors, pointers, [0, 1])
    with pytest.raises(IndexError):
        CORE._tensors_data_ptrs_at_indices_equal(tensors, pointers, [3])


def test_a_tensor_from_its_metadata():
    x = torch.arange(12.0, device=MUSA).reshape(3, 4)
    y = x[1:, ::2]
    metadata = {"size": y.size(), "stride": y.stride(), "storage_offset": y.storage_offset(), "dtype": y.dtype}
    z = CORE._construct_MUSA_Tensor_From_Storage_And_Metadata(metadata, y.untyped_storage())
    assert torch.equal(z, y) and z.data_ptr() == y.data_ptr() and z.device == y.device
    z.zero_()
    assert x[1, 0].item() == 0
    assert CORE._storage_Use_Count(impl(x)) >= 2
    for wrong in ({}, {**metadata, "dtype": None}, {k: v for k, v in metadata.items() if k != "size"}):
        with pytest.raises(ValueError, match="metadata"):
            CORE._construct_MUSA_Tensor_From_Storage_And_Metadata(wrong, y.untyped_storage())
    with pytest.raises(TypeError):
        CORE._construct_MUSA_Tensor_From_Storage_And_Metadata(metadata, 3)
