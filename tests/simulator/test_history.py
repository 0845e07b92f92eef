"""What the allocator remembers: traces, stacks, snapshots, and torch's own viewer of them."""

import json
import pickle

import pytest
import torch
import torch_musa
from torch.cuda import _memory_viz as viz

MIB = 1 << 20
CORE = torch_musa._MUSAC


@pytest.fixture(autouse=True)
def recorded():
    torch_musa._lazy_init()
    torch_musa.empty_cache()
    yield
    torch_musa._record_memory_history(None)


def snapshot():
    return torch_musa.memory._snapshot()


def trace(device=0):
    return snapshot()["device_traces"][device]


def make(size):
    return torch.empty(size, dtype=torch.uint8, device="musa:0")


def test_a_block_from_birth_to_death():
    torch_musa._record_memory_history()
    stream = torch_musa.Stream(0)
    with torch_musa.stream(stream):
        x = make(30 * MIB)
    address = x.data_ptr()
    x.record_stream(torch_musa.default_stream(0))
    del x
    make(8)
    torch_musa.empty_cache()
    entries = [e for e in trace() if e.get("addr") == address]
    assert [e["action"] for e in entries] == [
        "segment_alloc",
        "alloc",
        "free_requested",
        "free_completed",
        "segment_free",
    ]
    assert all(e["size"] == 30 * MIB and e["stream"] == stream.musa_stream for e in entries)
    times = [e["time_us"] for e in trace()]
    assert times == sorted(times) and times[0] > 1.6e15
    frames = entries[1]["frames"]
    mine = [f for f in frames if f["filename"] == __file__]
    assert [f["name"] for f in mine][:2] == ["make", "test_a_block_from_birth_to_death"]
    assert isinstance(mine[0]["line"], int) and mine[0]["line"] > 0
    assert any("DeviceMemory::allocate" in f["name"] for f in frames), "C++ frames"
    assert trace()[-1]["action"] == "snapshot" and trace()[-1]["addr"] == 0


def test_blocks_say_where_they_come_from():
    torch_musa._record_memory_history("state", stacks="python")
    x = make(3 * MIB)
    (block,) = [b for s in torch_musa.memory_snapshot() for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert block["state"] == "active_allocated" and block["requested_size"] == 3 * MIB
    assert block["frames"][0]["filename"] == __file__ and not any("DeviceMemory" in f["name"] for f in block["frames"])
    assert len(trace()) == 1, "the state and no history"
    del x
    assert not [
        b for s in torch_musa.memory_snapshot() for b in s["blocks"] if b["frames"] and b["state"] == "inactive"
    ]


@pytest.mark.parametrize(
    ("context", "alloc", "free", "block"),
    [(None, 0, 0, 0), ("state", 0, 0, 1), ("alloc", 1, 1, 1), ("all", 1, 1, 1)],
)
def test_how_much_context_is_kept(context, alloc, free, block):
    torch_musa._record_memory_history(context=context, stacks="python")
    x, y = make(3 * MIB), make(3 * MIB)
    address = x.data_ptr()
    del x
    entries = {e["action"]: e for e in trace() if e.get("addr") == address}
    assert bool(entries["alloc"].get("frames")) == alloc
    assert bool(entries["free_requested"].get("frames")) == free
    (kept,) = [b for s in torch_musa.memory_snapshot() for b in s["blocks"] if b["address"] == y.data_ptr()]
    assert bool(kept["frames"]) == block
    # Only "all" looks at where it was freed; "alloc" shows where it was made.
    if context in ("alloc", "all"):
        lines = {e: [f["name"] for f in entries[e]["frames"]] for e in ("alloc", "free_requested")}
        assert (lines["alloc"] == lines["free_requested"]) == (context == "alloc")


def test_the_number_of_entries_is_bounded():
    torch_musa._record_memory_history(max_entries=4)
    for _ in range(10):
        make(MIB)
    assert len(trace()) == 4 and not [e for e in trace(1) if e["action"] != "snapshot"]
    torch_musa._record_memory_history(None)
    assert trace() == [] and not CORE._musa_isHistoryEnabled()


def test_out_of_memory_is_an_entry():
    torch_musa._record_memory_history()
    free, total = torch_musa.mem_get_info(0)
    with pytest.raises(torch.OutOfMemoryError):
        make(2 * total)
    (entry,) = [e for e in trace() if e["action"] == "oom"]
    assert entry["device_free"] == free and entry["size"] == 2 * total and "addr" not in entry


def test_expandable_segments_are_mapped():
    torch_musa._record_memory_history()
    torch_musa._set_allocator_settings("expandable_segments:True")
    try:
        with torch_musa.stream(torch_musa.Stream(0)):
            x = make(25 * MIB)
        del x
        torch_musa.empty_cache()
    finally:
        torch_musa._set_allocator_settings("")
    sizes = [(e["action"], e["size"]) for e in trace() if e["action"].startswith("segment_")]
    assert sizes == [("segment_map", 40 * MIB), ("segment_unmap", 40 * MIB)]


def test_the_older_form():
    torch_musa._record_memory_history(True, trace_alloc_max_entries=100)
    x = make(3 * MIB)
    assert CORE._musa_isHistoryEnabled()
    assert [e for e in trace() if e["action"] == "alloc" and "frames" not in e]
    (block,) = [b for s in torch_musa.memory_snapshot() for b in s["blocks"] if b["address"] == x.data_ptr()]
    assert block["frames"]
    torch_musa._record_memory_history(True, True, 100, True)
    y = make(3 * MIB)
    assert [e for e in trace() if e.get("addr") == y.data_ptr() and e["frames"]]
    torch_musa._record_memory_history(False)
    assert not CORE._musa_isHistoryEnabled()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"enabled": "some"}, "expected state to be"),
        ({"context": "some"}, "expected context to be"),
        ({"stacks": "cpp"}, "expected stacks to be"),
    ],
)
def test_wrong_arguments(arguments, message):
    with pytest.raises(RuntimeError, match=message):
        torch_musa._record_memory_history(**arguments)


def test_wrong_numbers():
    with pytest.raises(ValueError, match="negative"):
        torch_musa._record_memory_history(max_entries=-1)
    with pytest.raises(TypeError):
        torch_musa._record_memory_history(max_entries="many")
    with pytest.raises(TypeError):
        torch_musa._record_memory_history(colour=1)


def test_settings_and_annotations():
    torch_musa._record_memory_history()
    torch_musa._set_allocator_settings("max_split_size_mb:64,garbage_collection_threshold:0.5")
    try:
        with torch.profiler.record_function("my range"):
            make(8)
        shot = snapshot()
    finally:
        torch_musa._set_allocator_settings("")
    assert set(shot) == {"segments", "device_traces", "allocator_settings", "external_annotations"}
    settings = shot["allocator_settings"]
    assert settings["max_split_size"] == 64 * MIB and settings["garbage_collection_threshold"] == 0.5
    assert settings["PYTORCH_MUSA_ALLOC_CONF"] == "max_split_size_mb:64,garbage_collection_threshold:0.5"
    assert [(a["name"], a["stage"], a["device"]) for a in shot["external_annotations"]] == [
        ("my range", "START", 0),
        ("my range", "END", 0),
    ]


def test_torchs_viewer_reads_a_dump(tmp_path):
    torch_musa._record_memory_history()
    before = snapshot()
    x = torch.ones(2 * MIB, device="musa:0")
    (x + 1).sum().item()
    torch_musa._dump_snapshot(str(tmp_path / "dump.pickle"))
    with open(tmp_path / "dump.pickle", "rb") as file:
        data = pickle.load(file)
    assert viz.segsum(data).startswith("Summary of segments")
    assert "viz" in viz.trace_plot(data).lower()
    assert "html" in viz.segment_plot(data).lower()
    assert "alloc" in viz.trace(data)
    assert viz.compare(before["segments"], data["segments"], lambda lines: lines)
    assert viz.memory(data, lambda lines: lines) and viz.segments(data, lambda lines: lines)
    json.dumps(data)  # plain values only
