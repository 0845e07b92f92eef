"""The allocator of the simulated device: statistics, limits, options, pinned and unified memory, leaks."""

import ctypes
import gc
import sys
import threading
from itertools import pairwise

import hypothesis.strategies as st
import pytest
import torch
import torch_musa
from hypothesis import HealthCheck, settings
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

import torchada

CORE = torch_musa._MUSAC
MUSA = "musa:0"
KIB, MIB = 1 << 10, 1 << 20


def buffer(size, device=MUSA):
    return torch.empty(size, dtype=torch.uint8, device=device)


def stat(key, device=0):
    return torch_musa.memory_stats(device)[key]


@pytest.fixture
def clean():
    """Nothing in the cache, and the counts start from zero."""
    torch_musa._lazy_init()
    gc.collect()
    torch_musa.empty_cache()
    torch_musa.reset_peak_memory_stats(0)
    torch_musa.reset_accumulated_memory_stats(0)
    yield
    torch_musa._set_allocator_settings("")
    torch_musa.set_per_process_memory_fraction(1.0, 0)
    torch_musa.empty_cache()


# ---- statistics ---------------------------------------------------------------------------------------


def test_small_and_large_requests(clean):
    before, reserved = torch_musa.memory_allocated(0), torch_musa.memory_reserved(0)
    small, large, own = buffer(1), buffer(2 * MIB), buffer(30 * MIB)
    stats = torch_musa.memory_stats(0)
    assert torch_musa.memory_allocated(0) - before == 512 + 32 * MIB
    assert stats["requested_bytes.all.current"] >= 1 + 32 * MIB
    assert torch_musa.memory_reserved(0) - reserved in (50 * MIB, 52 * MIB)
    assert stats["inactive_split_bytes.large_pool.current"] == 18 * MIB
    del small, large, own
    assert torch_musa.memory_allocated(0) == before
    assert torch_musa.max_memory_allocated(0) == before + 512 + 32 * MIB
    torch_musa.reset_peak_memory_stats(0)
    assert torch_musa.max_memory_allocated(0) == before
    assert torch_musa.memory_reserved(0) > reserved
    torch_musa.empty_cache()
    assert torch_musa.memory_reserved(0) == reserved
    assert stat("num_device_free") >= 2


def test_accumulated_counts_start_again(clean):
    x = buffer(3 * MIB)
    del x
    assert stat("allocated_bytes.all.allocated") == stat("allocated_bytes.all.freed") == 3 * MIB
    torch_musa.reset_accumulated_memory_stats(0)
    assert stat("allocated_bytes.all.allocated") == stat("num_device_alloc") == 0


def test_free_memory_follows_what_is_reserved(clean):
    free, total = torch_musa.mem_get_info(0)
    x = buffer(30 * MIB)
    assert torch_musa.mem_get_info(0) == (free - 30 * MIB, total)
    del x
    torch_musa.empty_cache()
    assert torch_musa.mem_get_info(0) == (free, total)


def test_freed_memory_reads_as_zero_after_it_went_back(clean):
    x = torch.full((30 * MIB,), 7, dtype=torch.uint8, device=MUSA)
    del x
    torch_musa.empty_cache()
    assert not buffer(30 * MIB).any()


@pytest.mark.parametrize("size", [-1, 1 << 62])
def test_impossible_sizes(size):
    with pytest.raises((RuntimeError, torch.OutOfMemoryError)):
        buffer(size)
    assert buffer(8).numel() == 8


# ---- running out of memory ----------------------------------------------------------------------------


def test_out_of_memory_and_recovery(clean):
    torch_musa.set_per_process_memory_fraction(0.01, 0)
    limit = int(torch_musa.mem_get_info(0)[1] * 0.01)
    ooms, allocated = stat("num_ooms"), torch_musa.memory_allocated(0)
    held = []
    with pytest.raises(torch.OutOfMemoryError, match=r"Tried to allocate 21\.00 MiB\. GPU 0 has") as info:
        for _ in range(limit // (21 * MIB) + 2):
            held.append(buffer(21 * MIB))
    message = str(info.value)
    assert "MUSA out of memory" in message and " allowed; Of the allocated memory" in message
    assert "expandable_segments:True" in message and "(Simulated device:" in message
    assert stat("num_ooms") == ooms + 1
    assert torch_musa.memory_reserved(0) <= limit
    held.clear()
    assert torch_musa.memory_allocated(0) == allocated
    big = buffer(limit // MIB * MIB - 22 * MIB)  # the cache gives its blocks back for it
    assert stat("num_alloc_retries") >= 1
    del big


def test_an_operator_that_runs_out_of_memory_leaves_nothing_behind(clean):
    x = torch.ones(5 * MIB, device=MUSA)
    before = torch_musa.memory_allocated(0)
    torch_musa.set_per_process_memory_fraction(0.005, 0)
    with pytest.raises(torch.OutOfMemoryError):
        torch.cat([x] * 8).sum()
    gc.collect()
    assert torch_musa.memory_allocated(0) == before
    torch_musa.set_per_process_memory_fraction(1.0, 0)
    assert torch.cat([x] * 8).sum().item() == 40 * MIB


def test_observers_hear_of_it(clean):
    heard = []
    CORE._musa_attach_out_of_memory_observer(lambda *args: heard.append(args))
    torch_musa.set_per_process_memory_fraction(0.5, 0)
    total = torch_musa.mem_get_info(0)[1]
    with pytest.raises(torch.OutOfMemoryError):
        buffer(total)
    assert heard[-1][:3] == (0, total, total // 2)
    with pytest.raises(TypeError):
        CORE._musa_attach_out_of_memory_observer(3)


@pytest.mark.parametrize(
    ("fraction", "error"), [(1, TypeError), ("0.5", TypeError), (-0.1, ValueError), (1.1, ValueError)]
)
def test_wrong_fractions(fraction, error):
    with pytest.raises(error):
        torch_musa.set_per_process_memory_fraction(fraction, 0)


# ---- other streams ------------------------------------------------------------------------------------


def test_memory_of_a_stream_is_its_own(clean):
    stream = torch_musa.Stream(0)
    with torch_musa.stream(stream):
        x = buffer(2 * MIB)
        address = x.data_ptr()
        del x
    assert buffer(2 * MIB).data_ptr() != address
    with torch_musa.stream(stream):
        assert buffer(2 * MIB).data_ptr() == address


def test_record_stream_delays_the_reuse(clean):
    x = buffer(2 * MIB)
    address, active = x.data_ptr(), stat("active.all.current")
    x.record_stream(torch_musa.Stream(0))
    del x
    states = [b["state"] for s in torch_musa.memory_snapshot() for b in s["blocks"] if b["address"] == address]
    assert states == ["active_pending_free"]
    assert stat("active.all.current") == active
    y = buffer(2 * MIB)  # looks at the other stream first
    assert y.data_ptr() == address
    assert stat("active.all.current") == active


def test_asynchronous_streams_delay_the_reuse(run_python):
    run_python(
        """
        import torchada.simulator; torchada.simulator.install()
        import torch, torch_musa
        busy = lambda: torch_musa._sleep(300_000_000)
        stream = torch_musa.Stream(0)
        x = torch.ones(1 << 20, device="musa")
        torch_musa.synchronize()
        address = x.data_ptr()
        with torch_musa.stream(stream):
            busy(); y = x * 2
        x.record_stream(stream); del x
        assert torch.zeros(1 << 20, device="musa").data_ptr() != address
        torch_musa.synchronize()
        assert y.min().item() == 2
        assert torch.zeros(1 << 20, device="musa").data_ptr() == address
        p = torch.ones(1000, pin_memory=True); address = p.data_ptr()
        busy(); d = p.to("musa", non_blocking=True); del p
        assert torch.zeros(1000, pin_memory=True).data_ptr() != address
        assert d.sum().item() == 1000
        assert torch.zeros(1000, pin_memory=True).data_ptr() == address
        """,
        env={"TORCHADA": "0", "TORCHADA_SIM_ASYNC": "1"},
    )


# ---- options ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("max_split_size_mb:20", "too small, must be > 20"),
        ("max_split_size_mb:x", "is not a number"),
        ("max_split_size_mb:-30", "is not a number"),
        ("garbage_collection_threshold:0", "too small"),
        ("garbage_collection_threshold:1", "too big"),
        ("roundup_power2_divisions:3", "power of 2"),
        ("roundup_power2_divisions:[256:1,512:3]", "power of 2"),
        ("roundup_power2_divisions:[256]", "expected size:divisions"),
        ("expandable_segments:yes", "True/False"),
        ("backend:other", "Unknown allocator backend"),
        ("pinned_num_register_threads:3", "power of 2"),
        ("nonsense:1", "Unrecognized CachingAllocator option: nonsense"),
        ("max_split_size_mb", "no value"),
    ],
)
def test_wrong_options(text, message):
    with pytest.raises(RuntimeError, match=message):
        torch_musa._set_allocator_settings(text)


def test_large_blocks_are_not_split_above_the_limit(clean):
    x = buffer(100 * MIB)
    del x
    torch_musa._set_allocator_settings("max_split_size_mb:50")
    assert stat("max_split_size") == 50 * MIB
    reserved = torch_musa.memory_reserved(0)
    y = buffer(11 * MIB)  # gets a segment of its own
    assert torch_musa.memory_reserved(0) == reserved + 12 * MIB
    z = buffer(60 * MIB)  # more than 20 MiB smaller than the free block
    assert torch_musa.memory_reserved(0) == reserved + 72 * MIB
    assert stat("oversize_allocations.current") == 1
    del y, z


def test_sizes_are_rounded_to_parts_of_powers_of_two(clean):
    before = torch_musa.memory_allocated(0)
    torch_musa._set_allocator_settings("roundup_power2_divisions:4")
    x = buffer(1200 * KIB)
    assert torch_musa.memory_allocated(0) - before == 1280 * KIB
    del x
    torch_musa._set_allocator_settings("roundup_power2_divisions:[1:1,2:4,>:8]")
    x = buffer(4 * MIB + 1)
    assert torch_musa.memory_allocated(0) - before == 4 * MIB + 512 * KIB
    del x


def test_old_blocks_go_back_above_the_threshold(clean):
    torch_musa.set_per_process_memory_fraction(0.02, 0)
    limit = int(torch_musa.mem_get_info(0)[1] * 0.02)
    torch_musa._set_allocator_settings("garbage_collection_threshold:0.3")
    x = buffer(limit // 2 // MIB * MIB)
    del x
    retries = stat("num_alloc_retries")
    y = torch_musa.Stream(0)
    with torch_musa.stream(y):
        z = buffer(12 * MIB)
    assert torch_musa.memory_reserved(0) < limit // 2
    assert stat("num_alloc_retries") == retries
    del z


def test_expandable_segments_grow_and_shrink(clean):
    torch_musa._set_allocator_settings("expandable_segments:True")
    segments = stat("segment.all.current")
    stream = torch_musa.Stream(0)
    with torch_musa.stream(stream):
        parts = [buffer(30 * MIB) for _ in range(4)]
    mine = [s for s in torch_musa.memory_snapshot() if s["is_expandable"]]
    assert len(mine) == 1 and mine[0]["total_size"] == 120 * MIB and mine[0]["stream"] == stream.musa_stream
    assert stat("segment.all.current") == segments
    ends = sorted(x.data_ptr() for x in parts)
    assert [b - a for a, b in pairwise(ends)] == [30 * MIB] * 3
    for x in parts:
        x.fill_(3)
    del parts[1:3], x
    torch_musa.empty_cache()  # a hole of whole pages in the middle
    mine = [s for s in torch_musa.memory_snapshot() if s["is_expandable"]]
    assert len(mine) == 2 and sum(s["total_size"] for s in mine) == 80 * MIB
    assert parts[0].min().item() == parts[1].min().item() == 3
    parts.clear()
    torch_musa.empty_cache()
    assert not [s for s in torch_musa.memory_snapshot() if s["is_expandable"]]


def test_without_the_cache(run_python):
    out = run_python(
        """
        import torchada.simulator; torchada.simulator.install()
        import torch, torch_musa
        free = torch_musa.mem_get_info()[0]
        x = torch.ones(3 << 20, dtype=torch.uint8, device="musa")
        assert torch_musa.memory_allocated() == torch_musa.memory_reserved() == 0
        assert torch_musa.mem_get_info()[0] == free - (4 << 20)
        assert (x + x).sum().item() == 6 << 20
        del x
        assert torch_musa.mem_get_info()[0] == free
        try:
            torch.empty(torch_musa.mem_get_info()[1] + 1, dtype=torch.uint8, device="musa")
        except RuntimeError as error:
            assert not isinstance(error, torch.OutOfMemoryError) and "out of memory" in str(error)
        else:
            raise AssertionError
        print("fine")
        """,
        env={"PYTORCH_NO_MUSA_MEMORY_CACHING": "1", "TORCHADA": "0"},
    )
    assert "fine" in out.stdout


# ---- leaks --------------------------------------------------------------------------------------------


def test_a_training_loop_leaves_nothing(clean):
    before = torch_musa.memory_allocated(0)

    def train():
        model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4)).to(MUSA)
        optimizer = torch.optim.AdamW(model.parameters())
        levels = []
        for _ in range(6):
            optimizer.zero_grad()
            model(torch.randn(8, 16, device=MUSA)).square().mean().backward()
            optimizer.step()
            levels.append(torch_musa.memory_allocated(0))
        assert levels[2:] == [levels[2]] * 4

    train()
    gc.collect()
    assert torch_musa.memory_allocated(0) == before


def test_exceptions_and_threads_leave_nothing(clean):
    before = torch_musa.memory_allocated(0)

    def work():
        x = torch.ones(64, 64, device=MUSA, requires_grad=True)
        (x @ x).sum().backward()
        with pytest.raises(RuntimeError):
            x @ torch.ones(3, device=MUSA)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    gc.collect()
    assert torch_musa.memory_allocated(0) == before


def test_threads_share_the_allocator():
    def work(seed):
        stream = torch_musa.Stream(0)
        with torch_musa.stream(stream):
            for i in range(60):
                x = torch.full((seed * 1000 + i,), seed, device=MUSA, dtype=torch.int32)
                y = x + i
                assert y.min().item() == y.max().item() == seed + i

    failures = []

    def guarded(seed):
        try:
            work(seed)
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=guarded, args=(seed,)) for seed in range(1, 7)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


# ---- pinned and registered host memory ----------------------------------------------------------------


def test_pinned_memory_is_cached():
    x = torch.arange(1000.0).pin_memory()
    address = x.data_ptr()
    assert x.is_pinned() and x[10:].is_pinned() and not torch.ones(3).is_pinned()
    assert torch.equal(x.to(MUSA, non_blocking=True).cpu(), torch.arange(1000.0))
    del x
    assert torch.empty(900, pin_memory=True).data_ptr() == address  # the same power of two


def test_registered_memory_is_pinned():
    x = torch.ones(4096)
    runtime = torch_musa.musart()
    address, size = x.data_ptr(), x.numel() * 4
    assert not x.is_pinned()
    assert runtime.musaHostRegister(address, size, 0) == runtime.musaError.success
    assert x.is_pinned() and x[7:].is_pinned()
    assert int(runtime.musaHostRegister(address, size, 0)) == 712
    assert int(runtime.musaHostRegister(address + 64, 8, 0)) == 712
    torch_musa.check_error(runtime.musaHostUnregister(address))
    assert not x.is_pinned()
    assert int(runtime.musaHostUnregister(address)) == 713
    assert int(runtime.musaHostRegister(0, 8, 0)) == int(runtime.musaHostRegister(address, 0, 0)) == 1
    with pytest.raises(torch_musa.MusaError, match="registered"):
        torch_musa.check_error(runtime.musaHostUnregister(address))


def test_a_data_loader_pins():
    data = torch.utils.data.TensorDataset(torch.arange(12.0).reshape(6, 2))
    seen = []
    for (batch,) in torch.utils.data.DataLoader(data, batch_size=2, pin_memory=True):
        assert batch.is_pinned()
        seen.append(batch.to(MUSA, non_blocking=True))
    assert torch.cat(seen).cpu().flatten().tolist() == list(range(12))


# ---- unified memory -----------------------------------------------------------------------------------


def test_unified_memory_changes_its_device_without_a_copy():
    with torch_musa.use_unified_cpu_allocator():
        x = torch.arange(8.0)
    assert x.device.type == "cpu" and torch.arange(8.0).data_ptr() != x.data_ptr()
    storage = x.untyped_storage()
    address = x.data_ptr()
    storage.edit_device("musa:1")
    y = torch.empty(0, device="musa:1").set_(storage, 0, (8,))
    assert y.device == torch.device("musa:1") and y.data_ptr() == address and (y * 2).sum().item() == 56
    storage.edit_device(torch.device("cpu"))
    x[0] = 100
    assert y.data_ptr() == address
    plain = torch.ones(4).untyped_storage()
    for device, error in ((0, "not unified"), ("meta", "cpu or musa"), ("musa:9", "invalid device ordinal")):
        with pytest.raises(RuntimeError, match=error):
            (plain if device == 0 else storage).edit_device(device)
    with pytest.raises(TypeError):
        storage.edit_device(None)


# ---- what leaves torch --------------------------------------------------------------------------------


def test_dlpack_is_as_torch_has_it_for_renamed_devices():
    x = torch.arange(6.0, device="musa:1")
    y = torch.utils.dlpack.from_dlpack(torch.utils.dlpack.to_dlpack(x))
    assert y.device == x.device and y.data_ptr() == x.data_ptr()
    y[0] = 7
    assert x[0].item() == 7
    del x
    assert y[0].item() == 7
    with torchada.disabled(), pytest.raises(ValueError, match="Unknown device type musa for Dlpack"):
        y.__dlpack_device__()
    with pytest.raises(TypeError, match=r"can't convert musa:1 device type tensor to numpy. Use Tensor.cpu\(\)"):
        y.numpy()


def test_raw_addresses():
    x = buffer(100)
    CORE._musa_musaCachingAllocator_raw_delete(0)
    with pytest.raises(RuntimeError, match="invalid device pointer"):
        CORE._musa_musaCachingAllocator_raw_delete(x.data_ptr() + 8)
    with pytest.raises(TypeError):
        CORE._musa_musaCachingAllocator_raw_delete("x")
    assert ctypes.string_at(x.fill_(65).data_ptr(), 3) == b"AAA"


# ---- the allocator against a model --------------------------------------------------------------------


class Allocator(RuleBasedStateMachine):
    """Random use. Blocks never overlap, keep their content, and the statistics add up."""

    @initialize()
    def start(self):
        torch_musa._lazy_init()
        gc.collect()
        torch_musa.empty_cache()
        self.before = torch_musa.memory_allocated(0)
        self.blocks = []
        self.streams = [torch_musa.default_stream(0), torch_musa.Stream(0), torch_musa.Stream(0)]
        self.pools = [None, torch_musa.MemPool()]
        self.counter = 0

    @rule(
        size=st.one_of(st.integers(1, 4096), st.integers(1, 3 * MIB), st.integers(9 * MIB, 25 * MIB)),
        stream=st.integers(0, 2),
        pool=st.integers(0, 1),
    )
    def allocate(self, size, stream, pool):
        with torch_musa.stream(self.streams[stream]):
            if self.pools[pool] is None:
                x = buffer(size)
            else:
                with torch_musa.use_mem_pool(self.pools[pool], 0):
                    x = buffer(size)
        self.counter = self.counter % 250 + 1
        x[0] = x[-1] = self.counter
        self.blocks.append((x, self.counter))

    @precondition(lambda self: self.blocks)
    @rule(index=st.integers(0, 1000), record=st.booleans(), stream=st.integers(0, 2))
    def free(self, index, record, stream):
        x, mark = self.blocks.pop(index % len(self.blocks))
        assert x[0].item() == x[-1].item() == mark
        if record:
            x.record_stream(self.streams[stream])

    @rule()
    def empty_cache(self):
        torch_musa.empty_cache()

    @rule(on=st.booleans())
    def expandable(self, on):
        torch_musa._set_allocator_settings(f"expandable_segments:{on}")

    @invariant()
    def the_books_are_right(self):
        if not hasattr(self, "blocks"):
            return
        stats = torch_musa.memory_stats(0)
        segments = [s for s in torch_musa.memory_snapshot() if s["device"] == 0]
        for key in ("allocated_bytes", "active_bytes", "reserved_bytes", "inactive_split_bytes", "requested_bytes"):
            total = stats[f"{key}.all.current"]
            assert total == stats[f"{key}.small_pool.current"] + stats[f"{key}.large_pool.current"] >= 0
            assert stats[f"{key}.all.peak"] >= total
        assert stats["reserved_bytes.all.current"] == sum(s["total_size"] for s in segments)
        assert stats["allocated_bytes.all.current"] == sum(s["allocated_size"] for s in segments)
        assert stats["active_bytes.all.current"] == sum(s["active_size"] for s in segments)
        end = 0
        for s in sorted(segments, key=lambda s: s["address"]):
            assert s["address"] >= end
            end = s["address"]
            previous = None
            for b in s["blocks"]:
                assert b["address"] == end and b["size"] > 0 and b["size"] % 512 == 0
                assert not previous == b["state"] == "inactive", "free neighbours are one block"
                end, previous = end + b["size"], b["state"]
            assert end == s["address"] + s["total_size"]
        spans = sorted((x.data_ptr(), x.numel()) for x, _ in self.blocks)
        assert all(a + n <= b for (a, n), (b, _) in pairwise(spans))

    def teardown(self):
        if not hasattr(self, "blocks"):
            return
        assert all(x[0].item() == x[-1].item() == mark for x, mark in self.blocks)
        self.blocks.clear()
        self.pools.clear()
        torch_musa._set_allocator_settings("")
        torch_musa.empty_cache()
        assert torch_musa.memory_allocated(0) == self.before


Allocator.TestCase.settings = settings(
    max_examples=15, stateful_step_count=20, deadline=None, suppress_health_check=list(HealthCheck)
)
TestAllocator = Allocator.TestCase


# ---- an allocator for the whole process ---------------------------------------------------------------


def test_an_allocator_of_ones_own(run_python, library):
    run_python(
        """
        import ctypes, sys
        import torchada.simulator; torchada.simulator.install()
        import torch, torch_musa
        path = sys.argv[1]
        mine = torch_musa.MUSAPluggableAllocator(path, "take", "give")
        lib = ctypes.CDLL(path)
        address = lambda name: ctypes.cast(getattr(lib, name), ctypes.c_void_p).value
        native = mine.allocator()
        native.set_init_fn(address("init")); native.set_reset_fn(address("reset"))
        native.set_memory_fraction_fn(address("limit"))
        assert torch_musa.get_allocator_backend() == "native"
        torch_musa.change_current_allocator(mine)
        assert torch_musa.get_allocator_backend() == "pluggable"
        read = lambda name, kind=ctypes.c_long: kind.in_dll(lib, name).value
        x = torch.ones(1000, device="musa")
        assert read("inits") == 2 and read("live") == 1 and read("total") == 4000
        assert (x * 2).sum().item() == 2000
        del x
        assert read("live") == 0
        torch_musa.empty_cache(); assert read("resets") == 1
        torch_musa.set_per_process_memory_fraction(0.25); assert read("fraction", ctypes.c_double) == 0.25
        calls = (torch_musa.memory_stats, torch_musa.memory_snapshot, torch_musa.reset_peak_memory_stats,
                 torch_musa.MemPool)
        for call in calls:
            try:
                call()
            except RuntimeError as error:
                assert "MUSAPluggableAllocator does not yet support" in str(error), error
            else:
                raise AssertionError(call)
        try:
            torch_musa.change_current_allocator(mine)
        except RuntimeError as error:
            assert "Can't swap an already initialized allocator" in str(error)
        else:
            raise AssertionError
        """,
        str(library),
        env={"TORCHADA": "0"},
    )


def test_wrong_allocators(library):
    with pytest.raises(OSError):
        torch_musa.MUSAPluggableAllocator(str(library) + "x", "take", "give")
    with pytest.raises(AttributeError):
        torch_musa.MUSAPluggableAllocator(str(library), "take", "no_such_function")
    with pytest.raises(ValueError, match="null"):
        CORE._musa_customAllocator(0, 0)
    with pytest.raises(TypeError):
        CORE._musa_changeCurrentAllocator(3)
    with pytest.raises(TypeError, match="No constructor"):
        CORE._MUSAPluggableAllocator()
    mine = torch_musa.MUSAPluggableAllocator(str(library), "take", "give").allocator()
    with pytest.raises(ValueError, match="null"):
        mine.set_reset_fn(0)
    with pytest.raises(RuntimeError, match="already initialized"):
        torch_musa._lazy_init()
        CORE._musa_changeCurrentAllocator(mine)
    assert isinstance(CORE._musa_getAllocator(), CORE._musa_MUSAAllocator)
    assert sys.getrefcount(mine) >= 1
