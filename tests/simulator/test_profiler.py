"""torch.profiler with device rows of the simulated device."""

import pytest

from .compiled import programs

run = pytest.fixture(scope="module", name="run")(programs)

HELPERS = """
import json
from torch.profiler import ProfilerActivity, profile, schedule
BOTH = [ProfilerActivity.CPU, ProfilerActivity.MUSA]

def trace(prof, path):
    prof.export_chrome_trace(path)
    return json.load(open(path))["traceEvents"]

def device_rows(events):
    return [e for e in events if e.get("cat") in ("kernel", "gpu_memcpy", "gpu_memset")]
"""


def test_kernels_belong_to_their_operators(run):
    run(
        HELPERS
        + """
x = torch.randn(64, 64, device="musa", requires_grad=True)
with profile(activities=BOTH, record_shapes=True) as prof:
    with torch.profiler.record_function("step"):
        (x @ x).relu().sum().backward()
    x.detach().cpu()
rows = {row.key: row for row in prof.key_averages()}
for name in ("aten::mm", "aten::relu", "aten::threshold_backward", "step"):
    assert rows[name].device_time_total > 0, name
assert rows["mm_kernel"].device_type == torch.autograd.DeviceType.PrivateUse1 and rows["mm_kernel"].count == 3
assert rows["aten::mm"].device_time_total == rows["mm_kernel"].self_device_time_total
assert rows["Memcpy DtoH (Device -> Pageable)"].count == 1 and rows["musaMemcpyAsync"].count == 1
assert rows["musaLaunchKernel"].count >= 6
table = prof.key_averages(group_by_input_shape=True).table(sort_by="self_device_time_total")
assert "Self MUSA" in table and "[[64, 64], [64, 64]]" in table and "mm_kernel" in table
"""
    )


def test_times_streams_and_devices_in_the_trace(run, tmp_path):
    run(
        HELPERS
        + f"""
a, b = torch.ones(300, 300, device="musa:0"), torch.ones(300, 300, device="musa:1")
stream = torch_musa.Stream()
with profile(activities=BOTH) as prof:
    for _ in range(3):
        a.sin(); b.cos()
    with torch_musa.stream(stream):
        a @ a
    torch_musa.synchronize()
events = trace(prof, {str(tmp_path / "trace.json")!r})
rows = device_rows(events)
by_name = {{}}
for row in rows:
    by_name.setdefault(row["name"], []).append(row)
assert [r["pid"] for r in by_name["sin_kernel"]] == [0] * 3 and [r["pid"] for r in by_name["cos_kernel"]] == [1] * 3
assert by_name["mm_kernel"][0]["tid"] == stream.stream_id != 0 == by_name["sin_kernel"][0]["tid"]
tracks = {{}}
for row in rows:
    tracks.setdefault((row["pid"], row["tid"]), []).append(row)
for track in tracks.values():                               # one after the other, none without a duration
    track.sort(key=lambda row: row["ts"])
    assert all(row["dur"] > 0 for row in track)
    assert all(e["ts"] + e["dur"] <= n["ts"] + 0.01 for e, n in zip(track, track[1:]))
operators = {{e["args"]["External id"]: e for e in events if e.get("cat") == "cpu_op"}}
launches = {{e["args"]["correlation"]: e for e in events if e.get("cat") == "privateuse1_runtime"}}
for row in rows:
    operator, launch = operators[row["args"]["External id"]], launches[row["args"]["correlation"]]
    assert row["ts"] >= launch["ts"] >= operator["ts"] - 5, (row, launch, operator)      # microseconds
    assert launch["ts"] <= operator["ts"] + operator["dur"] + 5
labels = [e["args"]["labels"] for e in events if e.get("name") == "process_labels"]
assert "MUSA 0 (simulated)" in labels and "MUSA 1 (simulated)" in labels
"""
    )


def test_schedule_and_stacks(run):
    run(
        HELPERS
        + """
seen = []
x = torch.ones(4, device="musa")
with profile(activities=BOTH, schedule=schedule(wait=1, warmup=1, active=2), with_stack=True,
             record_shapes=True, on_trace_ready=lambda p: seen.append((p.key_averages(), p.events())),
             experimental_config=torch._C._profiler._ExperimentalConfig(verbose=True)) as prof:
    for _ in range(4):
        y = x.add(1)
        prof.step()
((averages, events),) = seen
rows = {row.key: row for row in averages}
assert rows["add_Tensor_kernel"].count == 2 and rows["aten::add"].count == 2
assert any(event.stack for event in events if event.name == "aten::add")
"""
    )


def test_memory_of_the_device(run):
    run(
        HELPERS
        + """
x = torch.ones(4, device="musa")
with profile(activities=BOTH, profile_memory=True) as prof:
    y = x.add(1)
    del y
events = [e for e in prof.events() if e.name == "aten::add"]
assert events[0].device_memory_usage == 512, events[0].device_memory_usage
freed = [e for e in prof.events() if e.name == "[memory]"]
assert sum(e.device_memory_usage for e in freed) == -512, freed
"""
    )


def test_only_what_was_asked_for(run):
    run(
        HELPERS
        + """
x = torch.ones(4, device="musa")
with profile(activities=[ProfilerActivity.CPU]) as prof:
    x + 1
assert "add_Tensor_kernel" not in {row.key for row in prof.key_averages()}
with profile(activities=[ProfilerActivity.MUSA]) as prof:
    x + 1
rows = {row.key for row in prof.key_averages()}
assert "add_Tensor_kernel" in rows and "aten::add" not in rows
for _ in range(2):                          # nothing is left over from an earlier run
    with profile(activities=BOTH) as prof:
        x * 2
    assert {row.key: row.count for row in prof.key_averages()}["mul_Tensor_kernel"] == 1
x + 1
with profile(activities=BOTH) as prof:
    pass
assert not [row for row in prof.key_averages() if row.key.endswith("_kernel")]
assert ProfilerActivity.MUSA in torch.profiler.supported_activities()
"""
    )


def test_the_older_profiler(run):
    run(
        HELPERS
        + """
x = torch.ones(100, 100, device="musa")
with torch.autograd.profiler.profile(use_device="musa") as prof:
    x @ x
assert {row.key: row for row in prof.key_averages()}["aten::mm"].device_time_total > 0
with torch.autograd.profiler.profile(use_device="musa", use_kineto=False) as prof:
    x @ x
assert {row.key: row for row in prof.key_averages()}["aten::mm"].device_time_total > 0   # by events of the device
with torch.autograd.profiler.emit_itt(enabled=False):
    x + 1
"""
    )


def test_compiled_kernels_have_rows(run):
    run(
        HELPERS
        + """
f = torch.compile(lambda x: (x + 1).sin())
x = torch.ones(8, device="musa")
f(x)
with profile(activities=BOTH) as prof:
    f(x)
kernels = [row.key for row in prof.key_averages() if row.self_device_time_total > 0 and "Compiled" not in row.key]
assert len(kernels) == 1 and kernels[0].startswith("cpp_fused_add_sin"), kernels
"""
    )


def test_asynchronous_work_is_recorded_where_it_runs(run, tmp_path):
    out = run.fresh(
        HELPERS
        + f"""
x = torch.ones(10, device="musa")
with profile(activities=BOTH) as prof:
    torch_musa._sleep(20_000_000)
    y = x + 1
    torch_musa.synchronize()
events = trace(prof, {str(tmp_path / "t.json")!r})
rows = {{e["name"]: e for e in device_rows(events)}}
launch = [e for e in events if e.get("name") == "musaLaunchKernel"]
add, spin = rows["add_Tensor_kernel"], rows["spin_kernel"]
assert add["ts"] >= spin["ts"] + spin["dur"] - 1
issued = [e for e in launch if e["args"]["correlation"] == add["args"]["correlation"]][0]
print(add["ts"] - issued["ts"] > 5_000)        # microseconds: it waited behind the sleep
""",
        TORCHADA_SIM_ASYNC="1",
    )
    assert out.splitlines()[-1] == "True"


def test_analysis_of_a_profile(run):
    run(
        HELPERS
        + """
import torch.profiler._pattern_matcher as patterns, torch.profiler._utils as utils
ours = torch_musa.profiler
assert utils.BasicEvaluation is ours.BasicEvaluation and ours._utils.BasicEvaluation is ours.BasicEvaluation
assert patterns.ExtraMUSACopyPattern is ours.ExtraMUSACopyPattern
assert patterns.FP32MatMulPattern is ours.FP32MatMulPattern and issubclass(ours.FP32MatMulPattern, patterns.Pattern)
assert patterns.report_all_anti_patterns is ours.report_all_anti_patterns
with profile(activities=BOTH, with_stack=True, record_shapes=True) as prof:
    for _ in range(3):
        torch.zeros(40, 40).orig_to("musa") @ torch.ones(40, 40, device="musa")
depth = ours.BasicEvaluation(prof.profiler)
assert depth.metrics and depth.compute_queue_depth()
found = ours.ExtraMUSACopyPattern(prof)
assert "MUSA" in found.name and len(found.matched_events()) == 3
ours.report_all_anti_patterns(prof, print_enable=False)
"""
    )


def test_the_process_ends_well_after_a_profile(run):
    out = run.fresh(
        HELPERS
        + """
with profile(activities=BOTH) as prof:
    torch.ones(3, device="musa") + 1
print("end")
"""
    )
    assert out == "end\n"
