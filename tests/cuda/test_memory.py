"""torch.cuda.memory: statistics that can be believed, aliases, pools, the allocator by hand."""

import ctypes
import gc
import inspect
import os
import pickle
import shlex
import subprocess

import pytest
import torch
import torch_musa

import torchada
from torchada.engine import ENGINE

MIB = 2**20


def _native(function):
    """torch's own."""
    return vars(ENGINE.virtuals["torch.cuda.memory"].native)[function]


def _takes(function, name):
    """Whether this torch's function of that name has the parameter."""
    return name in inspect.signature(_native(function)).parameters


def compiler():
    return shlex.split(os.environ.get("CXX", "g++"))


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
    if hasattr(_native(name), "__deprecated__"):  # 2.7 names itself in two
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
    uses = [lambda: torch.cuda.caching_allocator_enable(False)]
    if hasattr(torch.cuda, "caching_allocator_disabled"):
        uses.append(lambda: torch.cuda.caching_allocator_disabled())
    for use in uses:
        with pytest.raises(torchada.NotOnMusa, match="PYTORCH_NO_MUSA_MEMORY_CACHING"):
            use()


def test_host_memory_statistics_are_empty():
    assert torch.cuda.host_memory_stats() == {}
    assert torch.cuda.host_memory_stats_as_nested_dict() == {}
    assert torch.cuda.reset_peak_host_memory_stats() is None
    assert torch.cuda.reset_accumulated_host_memory_stats() is None


def test_memory_snapshot():
    x = torch.empty(MIB, dtype=torch.uint8, device="cuda:1")
    (segment,) = [segment for segment in torch.cuda.memory_snapshot() if _holds(segment, x)]
    assert segment["device"] == 1 and segment["stream"] == 0
    (block,) = [block for block in segment["blocks"] if block["address"] == x.data_ptr()]
    assert (block["state"], block["requested_size"]) == ("active_allocated", MIB) and block["size"] >= MIB
    assert sum(part["size"] for part in segment["blocks"]) == segment["total_size"]
    assert torch.cuda.memory_snapshot(None) == torch.cuda.memory_snapshot(mempool_id=None)
    with pytest.raises(torchada.NotOnMusa, match="no pool id"):
        torch.cuda.memory_snapshot((0, 1))
    del x


def _holds(segment, tensor):
    return segment["address"] <= tensor.data_ptr() < segment["address"] + segment["total_size"]


@pytest.fixture
def recorded():
    """What ran while the history was kept, the last first; frames of this file only."""
    torch.cuda.memory._record_memory_history(max_entries=100, stacks="python")
    try:
        yield lambda: list(reversed(torch.cuda.memory._snapshot()["device_traces"][0]))
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def test_memory_history(recorded, tmp_path):
    assert torch._C._cuda_isHistoryEnabled()
    x = torch.empty(3 * MIB, dtype=torch.uint8, device="cuda")
    address = x.data_ptr()
    del x
    events = [event for event in recorded() if event["addr"] == address]
    assert [event["action"] for event in events][:3] == ["free_completed", "free_requested", "alloc"]
    assert events[2]["size"] == 3 * MIB
    lines = [frame["name"] for frame in events[2]["frames"] if frame["filename"] == __file__]
    assert lines == ["test_memory_history"]
    file = tmp_path / "snapshot.pickle"
    torch.cuda.memory._dump_snapshot(str(file))
    dumped = pickle.loads(file.read_bytes())
    assert address in [event["addr"] for event in dumped["device_traces"][0]]
    from torch.cuda import _memory_viz

    assert "[0:3.0MiB]" in _memory_viz.trace(dumped) and "segments:" in _memory_viz.segsum(dumped)
    torch.cuda.memory._record_memory_history(enabled=None)
    assert not torch._C._cuda_isHistoryEnabled()


def test_what_the_memory_history_lacks_is_refused(recorded, tmp_path):
    """Not dropped."""
    history = torch.cuda.memory
    for keywords in ({"clear_history": True}, {"skip_actions": ["alloc"]}):
        if not _takes("_record_memory_history", next(iter(keywords))):
            continue
        with pytest.raises(torchada.NotOnMusa, match=next(iter(keywords))):
            history._record_memory_history(**keywords)
    if _takes("_record_memory_history", "compile_context"):
        with pytest.raises(torchada.NotOnMusa, match="compile_context"):
            history._record_memory_history(True, compile_context=True)
    with pytest.raises(TypeError):
        history._record_memory_history(nonsense=True)
    for call in (history._snapshot, lambda **keywords: history._dump_snapshot(str(tmp_path / "x"), **keywords)):
        if not _takes("_snapshot", "augment_with_fx_traces"):
            break
        with pytest.raises(torchada.NotOnMusa, match="augment_with_fx_traces"):
            call(augment_with_fx_traces=True)
    assert torch._C._cuda_isHistoryEnabled()  # none of these switched it off


@pytest.mark.parametrize("arguments", [(True,), (True, True, 10), (False,)], ids=str)
def test_the_old_form_of_the_memory_history(arguments):
    try:
        torch.cuda.memory._record_memory_history(*arguments)
        assert torch._C._cuda_isHistoryEnabled() is arguments[0]
    finally:
        torch.cuda.memory._record_memory_history(enabled=None)


def test_out_of_memory_observers():
    seen = []
    torch._C._cuda_attach_out_of_memory_observer(lambda *told: seen.append(told))
    with pytest.raises(torch.OutOfMemoryError, match=r"^CUDA out of memory"):
        torch.empty(2**50, dtype=torch.uint8, device="cuda")
    assert seen[0][:2] == (0, 2**50)


@pytest.mark.skipif(not hasattr(torch.cuda.memory, "_set_memory_metadata"), reason="a name of later versions")
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
    if hasattr(torch.cuda.memory, "_cuda_endAllocateToPool"):  # torch 2.7 has the other name
        assert torch.cuda.memory._cuda_endAllocateToPool is torch_musa._MUSAC._musa_endAllocateCurrentStreamToPool
    assert torch.cuda.memory._cuda_CUDAAllocator is torch_musa._MUSAC._musa_MUSAAllocator
    assert torch.cuda.get_allocator_backend() == "native"


def test_memory_pools():
    pool = torch.cuda.MemPool(None, False, no_split=False)
    assert isinstance(pool, torch.cuda.memory.MemPool) and pool.id != torch.cuda.MemPool().id
    outside = torch.ones(1000, device="cuda")
    with torch.cuda.use_mem_pool(pool, "cuda:0"):
        x, y = torch.ones(1000, device="cuda"), torch.ones(1000, device="cuda")
    segments = torch.cuda.memory_snapshot()
    (mine,) = [segment for segment in segments if _holds(segment, x)]
    assert _holds(mine, y) and not _holds(mine, outside)
    assert not _holds(mine, torch.ones(1000, device="cuda"))  # the pool is left
    assert (x + y).sum().item() == 2000
    address, held = mine["address"], torch.cuda.memory_reserved()
    del x, y, pool, mine, segments
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() < held
    assert address not in [segment["address"] for segment in torch.cuda.memory_snapshot()]


def test_an_allocator_of_the_program(tmp_path):
    """Written for CUDA: the stream is a cudaStream_t there."""
    source, library = tmp_path / "mine.cpp", tmp_path / "mine.so"
    source.write_text(
        "#include <cstdlib>\n#include <sys/types.h>\nlong taken = 0, given = 0;\n"
        'extern "C" void* take(ssize_t size, int device, void* stream) { ++taken; return aligned_alloc(512, size); }\n'
        'extern "C" void give(void* pointer, ssize_t size, int device, void* stream) { ++given; free(pointer); }\n'
        'extern "C" long told(int which) { return which ? given : taken; }\n'
    )
    subprocess.run([*compiler(), "-shared", "-fPIC", str(source), "-o", str(library)], check=True, timeout=120)
    told = ctypes.CDLL(str(library)).told
    mine = torch.cuda.CUDAPluggableAllocator(str(library), "take", "give")
    pool = torch.cuda.MemPool(mine.allocator())
    with torch.cuda.use_mem_pool(pool):
        x = torch.full((1000,), 3.0, device="cuda")
    assert told(0) == 1 and told(1) == 0 and x.sum().item() == 3000
    with pytest.raises(OSError, match="nowhere"):
        torch.cuda.CUDAPluggableAllocator(str(tmp_path / "nowhere.so"), "take", "give")
    del x, pool
    gc.collect()
    torch.cuda.empty_cache()
    assert told(1) == 1


def test_modes_of_pools_that_torch_musa_lacks():
    pool = torch.cuda.MemPool()
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


# ---------------------------------------------------------------- options
SETTINGS = """
import torchada, torch, os
settings = torch.cuda.memory._snapshot()["allocator_settings"]
print(settings["PYTORCH_CUDA_ALLOC_CONF"], settings["max_split_size"], settings["garbage_collection_threshold"])
print(os.environ.get("PYTORCH_MUSA_ALLOC_CONF"))
"""
NAMES = dict.fromkeys(
    ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_MUSA_ALLOC_CONF", "TORCHADA_ALLOC_CONF")
)
SPLIT, COLLECT = "max_split_size_mb:64", "garbage_collection_threshold:0.5"


@pytest.mark.parametrize(
    ("given", "options"),
    [
        ({"PYTORCH_CUDA_ALLOC_CONF": f"{SPLIT},{COLLECT}"}, f"{SPLIT},{COLLECT}"),
        ({"PYTORCH_ALLOC_CONF": SPLIT, "PYTORCH_CUDA_ALLOC_CONF": COLLECT}, SPLIT),
        ({"PYTORCH_MUSA_ALLOC_CONF": COLLECT, "PYTORCH_CUDA_ALLOC_CONF": SPLIT}, COLLECT),
        # a parent wrote MUSA's variable from the first, and chose the second for its child
        ({"PYTORCH_MUSA_ALLOC_CONF": SPLIT, "TORCHADA_ALLOC_CONF": SPLIT, "PYTORCH_CUDA_ALLOC_CONF": COLLECT}, COLLECT),
    ],
    ids=["CUDA's", "torch's first", "MUSA's decides", "of a child"],
)
def test_allocator_options(run_python, given, options):
    lines = run_python(SETTINGS, env=NAMES | given).stdout.splitlines()
    assert lines[0].split()[0] == lines[1] == options
    assert lines[0].split()[1:] == [str(64 * MIB if SPLIT in options else -1), "0.5" if COLLECT in options else "0.0"]


def test_allocator_options_of_other_names(run_python):
    divisions = "roundup_power2_divisions:[256:1,512:2]"
    text = f"backend: native, release_lock_on_cudamalloc:True,pinned_reserve_segment_size_mb:4,{divisions}"
    done = run_python(SETTINGS, env=NAMES | {"PYTORCH_CUDA_ALLOC_CONF": text})
    found = done.stdout.splitlines()[1]
    assert found == f"backend:native,release_lock_on_musamalloc:True,{divisions}"
    assert done.stderr.count("has no option pinned_reserve_segment_size_mb, which is left out") == 1
    done = run_python(
        "import torchada, torch; torch.ones(1, device='cuda')",
        env=NAMES | {"PYTORCH_CUDA_ALLOC_CONF": "max_spilt_size_mb:64"},
        ok=False,
    )
    assert done.returncode == 1 and "Unrecognized" in done.stderr and "max_spilt_size_mb" in done.stderr


@pytest.mark.parametrize(
    ("before", "then"),
    [
        ("import torchada, torch", ""),
        ("import torch", "import torchada"),
        ("import torchada, torch; torch.ones(1, device='cuda'); torchada.deactivate()", "torchada.activate()"),
    ],
    ids=["before use", "activated after torch", "activated after use"],
)
def test_allocator_options_chosen_late(run_python, before, then):
    """The program has imported torch, and sets them before the allocator is used; undone in the end."""
    code = f"""
import os
{before}
os.environ["PYTORCH_CUDA_ALLOC_CONF"] = {SPLIT!r}
{then}
x = torch.ones(1, device="cuda")
print(torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"], os.environ["PYTORCH_MUSA_ALLOC_CONF"])
torchada.deactivate()
print(os.environ.get("PYTORCH_MUSA_ALLOC_CONF"), os.environ.get("TORCHADA_ALLOC_CONF"))
"""
    assert run_python(code, env=NAMES).stdout.split() == [str(64 * MIB), SPLIT, "None", "None"]


def test_allocator_options_at_run_time(run_python):
    code = """
import torchada, torch, warnings
warnings.simplefilter("ignore", FutureWarning)
def found():
    return torch.cuda.memory._snapshot()["allocator_settings"]["max_split_size"] // 2**20
for set_options in (
    torch.cuda.memory._set_allocator_settings,
    torch._C._accelerator_setAllocatorSettings,
    torch._C._cuda_cudaCachingAllocator_set_allocator_settings,
):
    set_options("max_split_size_mb:64,release_lock_on_cudamalloc:True")
    print(found())
    set_options("max_split_size_mb:32")
    print(found())
"""
    assert run_python(code, env=NAMES).stdout.split() == ["64", "32"] * 3
