"""torch.profiler asked in CUDA's words."""

import collections
import copy
import gzip
import inspect
import json
import os
import pickle
import re
import threading
import warnings

import pytest
import torch
from torch.autograd import DeviceType
from torch.profiler import ProfilerActivity, profile, schedule, supported_activities, tensorboard_trace_handler

import torchada

CPU, CUDA, DEVICE = ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.PrivateUse1

shows_devices = pytest.mark.skipif(
    DEVICE not in torch._C._autograd._supported_activities(),
    reason="this torch is built for CUDA, and such a one before 2.12 shows no other device in profiles",
)


def kernels(prof, kind=DeviceType.CUDA):
    """Names of what ran on the device, as a CUDA program looks for them."""
    return {row.key for row in prof.key_averages() if row.device_type == kind}


@shows_devices
@pytest.mark.parametrize("activities", [[CPU, CUDA], (CUDA,), {CUDA}, [CUDA, DEVICE], None], ids=str)
def test_the_cuda_activity_shows_the_device(activities):
    x = torch.ones(20, 20, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # "CUDA is not available, disabling CUDA profiling"
        warnings.filterwarnings("ignore", ".*clears events at the end of each cycle")  # of torch 2.12, to everybody
        with profile(activities=activities) as prof:
            (x @ x).sin()
    assert {"mm_kernel", "sin_kernel"} <= kernels(prof)
    assert DEVICE in prof.activities and CUDA not in prof.activities
    assert "mm_kernel" in prof.key_averages().table(sort_by="cuda_time_total")


@pytest.mark.parametrize(
    ("kinds", "seen"),
    [
        (["GPU_MEMCPY", "CUDA_RUNTIME"], {"Memcpy DtoH (Device -> Pageable)"}),
        (["CONCURRENT_KERNEL"], {"sin_kernel"}),
        (["CONCURRENT_KERNEL", "GPU_MEMCPY"], {"sin_kernel", "Memcpy DtoH (Device -> Pageable)"}),
        (["CUDA_RUNTIME", "CUDA_DRIVER"], set()),
        ([], set()),
    ],
    ids=["copies", "kernels", "both", "launches", "none"],  # the same in every process: sets have no order
)
def test_kinds_of_events(kinds, seen):
    if not hasattr(torch.profiler.profiler, "_parse_activities"):
        with pytest.raises(TypeError):  # an older torch knows no kinds
            profile(activities=[CPU, {CUDA: kinds}])
        return
    x = torch.ones(20, device="cuda")
    with profile(activities=[CPU, {CUDA: kinds}]) as prof:
        x.sin().cpu()
    assert kernels(prof) == seen


def test_unknown_kinds_are_refused():
    with pytest.raises((RuntimeError, TypeError), match=r"nonsense|unhashable"):
        profile(activities=[{CUDA: ["nonsense"]}]).start()


def test_only_what_was_asked_for():
    x = torch.ones(20, 20, device="cuda")
    with profile(activities=[CPU]) as prof:
        x @ x
    assert not kernels(prof) and "aten::mm" in {row.key for row in prof.key_averages()}
    with pytest.raises(TypeError):
        profile(activities=5)


def test_collection_is_switched_by_the_cuda_activity(run_python):
    """torch knows how to do that for GPUs of its own only, and says so. With CUDA's name it would be silent."""
    done = run_python(
        """
        import torchada, torch
        from torch.profiler import ProfilerActivity as P
        with torch.profiler.profile(activities=[P.CPU, P.CUDA]) as prof:
            prof.toggle_collection_dynamic(False, [P.CUDA])
        """
    )
    assert "toggle" in done.stderr


@shows_devices
def test_autograd_profiler():
    x = torch.ones(20, 20, device="cuda")
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as prof:
        x @ x
    assert prof.use_device == "cuda" and not prof.use_cuda and "mm_kernel" in kernels(prof)
    with pytest.warns(FutureWarning, match="use_device = 'cuda'") as caught:
        prof = torch.autograd.profiler.profile(use_cuda=True, use_kineto=True)
    assert caught[0].filename == __file__ and prof.use_device == "cuda" and prof.use_cuda
    with prof:
        x @ x
    assert "mm_kernel" in kernels(prof)
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=False) as prof:  # by events of the device
        x @ x
    assert {row.key: row for row in prof.key_averages()}["aten::mm"].device_time_total > 0
    with torch.autograd.profiler.profile(enabled=False, use_device="cuda") as prof:
        x @ x
    assert prof is None


@shows_devices
def test_supported_activities():
    assert {CPU, CUDA, DEVICE} <= supported_activities() == torch.profiler.supported_activities()
    x = torch.ones(20, 20, device="cuda")
    with profile(activities=supported_activities()) as prof:
        x @ x
    assert "mm_kernel" in kernels(prof) and prof.activities == {CPU, DEVICE}
    assert profile().activities == {CPU, DEVICE} and profile().use_device == "cuda"


@shows_devices
@pytest.mark.parametrize("ending", [".json", ".json.gz"])
def test_trace_of_a_schedule(tmp_path, ending):
    seen = []

    def ready(prof):
        seen.append(prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=-1))
        prof.export_chrome_trace(str(tmp_path / f"trace{ending}"))

    x = torch.ones(20, 20, device="cuda")
    steps = schedule(wait=1, warmup=1, active=2, repeat=1)
    with profile(activities=[CPU, CUDA], schedule=steps, on_trace_ready=ready, record_shapes=True) as prof:
        for _ in range(5):
            with torch.profiler.record_function("my privateuse1_step"):
                (x @ x).cpu()
            prof.step()
    assert len(seen) == 1 and "mm_kernel" in seen[0] and "ProfilerStep*" in seen[0]
    opened = gzip.open if ending.endswith("gz") else open
    with opened(tmp_path / f"trace{ending}", "rt") as file:
        events = json.load(file)["traceEvents"]
    found = collections.Counter((event.get("cat"), event["name"]) for event in events)
    assert found["kernel", "mm_kernel"] == 2 and found["cuda_runtime", "cudaLaunchKernel"] >= 2
    assert found["gpu_memcpy", "Memcpy DtoH (Device -> Pageable)"] == 2
    assert found["user_annotation", "my privateuse1_step"] == 2
    assert not any(str(category).startswith("privateuse1") for category, _ in found)
    assert not any(name.startswith("musa") for _, name in found)
    launches = {event["args"]["correlation"]: event["ts"] for event in events if event.get("cat") == "cuda_runtime"}
    work = [event for event in events if event.get("cat") in ("kernel", "gpu_memcpy")]
    assert work and all(event["ts"] >= launches[event["args"]["correlation"]] for event in work)


@shows_devices
def test_tensorboard_trace(tmp_path):
    with profile(activities=[CUDA], on_trace_ready=tensorboard_trace_handler(str(tmp_path))):
        torch.ones(2, device="cuda") + 1
    (name,) = os.listdir(tmp_path)
    assert name.endswith(".pt.trace.json") and '"cuda_runtime"' in (tmp_path / name).read_text()


@shows_devices
def test_classes_stay_what_they_are():
    for kind in (profile, torch.autograd.profiler.profile, torch.autograd.profiler.emit_nvtx):
        assert pickle.loads(pickle.dumps(kind)) is kind
    assert list(inspect.signature(profile).parameters)[:3] == ["activities", "schedule", "on_trace_ready"]
    assert inspect.signature(torch.autograd.profiler.profile).parameters["use_device"].default is None

    class Mine(profile):
        def __init__(self, *, activities, note):
            super().__init__(activities=activities)
            self.note = note

    asked = [CPU, CUDA]
    with Mine(activities=asked, note="mine") as prof:
        torch.ones(2, device="cuda") + 1
    assert prof.note == "mine" and kernels(prof) and asked == [CPU, CUDA]
    assert copy.copy(CUDA) == CUDA != DEVICE


def test_emit_nvtx():
    emit = torch.autograd.profiler.emit_nvtx
    with emit(enabled=False) as entered:
        assert entered is None
    context = emit(record_shapes=True)
    with pytest.warns(torchada.TorchadaWarning, match="there is no NVTX") as caught:
        with context as entered:
            assert entered is context and not torch.autograd._profiler_enabled()
    assert caught[0].filename == __file__
    with pytest.raises(RuntimeError, match="not reentrant"):
        context.__enter__()
    with pytest.raises(KeyError), pytest.warns(torchada.TorchadaWarning), emit():
        raise KeyError


@shows_devices
def test_with_cuda_forced_available(run_python):
    """torch then took CUDA's fallback, which failed with a trace of C++ for each operator."""
    done = run_python(
        """
        import torchada, torch
        from torch.profiler import ProfilerActivity as P
        assert torch.cuda.is_available()
        x = torch.ones(20, 20, device="cuda")
        ways = [torch.profiler.profile(activities=[P.CPU, P.CUDA]), torch.autograd.profiler.profile(use_device="cuda")]
        for prof in ways:
            with prof:
                x @ x
            rows = {row.key: row.device_time_total for row in prof.key_averages()}
            assert rows["aten::mm"] > 0, rows
        """,
        env={"TORCHADA_FORCE_CUDA_AVAILABLE": "1"},
    )
    # A torch built for CUDA looks for NVIDIA's tools, and tells of that in lines of kineto's with their time.
    told = [line for line in done.stderr.splitlines() if not re.match(r"\w+:\d{4}-\d\d-\d\d ", line)]
    assert not any("CUDA" in line for line in told) and len(told) < 10


@shows_devices
def test_events_are_those_of_a_cuda_device(tmp_path):
    x = torch.ones(50, 50, device="cuda:1")
    with profile(activities=[CPU, CUDA], record_shapes=True, with_stack=True, with_flops=True) as prof:
        with torch.profiler.record_function("step"):
            (x @ x).cpu()
    on_device = [event for event in prof.events() if event.device_type == DeviceType.CUDA]
    assert {"mm_kernel", "Memcpy DtoH (Device -> Pageable)"} <= {event.name for event in on_device}
    assert all(event.device_index == 1 and event.use_device == "cuda" for event in on_device)
    assert not [event for event in prof.events() if event.device_type == DeviceType.PrivateUse1]
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::mm"].device_time_total == rows["mm_kernel"].self_device_time_total > 0
    (mm,) = [event for event in prof.events() if event.name == "aten::mm"]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch wants device_time_total instead
        assert mm.cuda_time_total == mm.device_time_total > 0 and mm.cuda_time == mm.device_time
    assert rows["aten::mm"].device_time > 0 and rows["step"].device_time_total > 0 and rows["aten::mm"].flops > 0
    for key in ("cuda_time_total", "self_cuda_time_total", "device_time_total", "self_device_time_total", "cuda_time"):
        table = prof.key_averages(group_by_input_shape=True).table(sort_by=key, row_limit=20)
        assert (
            "Self CUDA" in table and "CUDA total" in table and "Self CUDA time total:" in table and "MUSA" not in table
        )
    assert prof.key_averages().table(sort_by="self_cuda_time_total", row_limit=1).count("mm") >= 1
    prof.export_stacks(str(tmp_path / "stacks"), "self_cuda_time_total")
    assert (tmp_path / "stacks").exists()
    assert prof.key_averages().total_average().device_time_total > 0


@shows_devices
def test_calls_of_the_runtime_have_cudas_names():
    """In events and tables as in traces: programs count ``cudaLaunchKernel`` and look for ``cudaMemcpyAsync``."""
    x = torch.ones(8, device="cuda")
    with profile(activities=[CPU, CUDA]) as prof:
        with torch.profiler.record_function("musaOwn"):
            x.sin().cpu()
    names = {event.name for event in prof.events()}
    assert {"cudaLaunchKernel", "cudaMemcpyAsync", "musaOwn"} <= names
    assert {name for name in names if name.startswith("musa")} == {"musaOwn"}
    assert "cudaLaunchKernel" in prof.key_averages().table()
    calls = [event for event in prof.events() if event.name.startswith("cuda")]
    assert {getattr(event, "activity_type", "cuda_runtime") for event in calls} == {"cuda_runtime"}
    raw = {event.name() for event in prof.profiler.kineto_results.events()}
    assert "musaLaunchKernel" in raw


@shows_devices
def test_asked_for_by_its_own_name_it_is_itself(tmp_path):
    x = torch.ones(50, 50, device="cuda")
    with profile(activities=[CPU, DEVICE]) as prof:
        x @ x
    assert prof.use_device == "musa" and "mm_kernel" in kernels(prof, DeviceType.PrivateUse1) and not kernels(prof)
    assert "musaLaunchKernel" in {event.name for event in prof.events()}
    assert "MUSA total" in prof.key_averages().table(sort_by="device_time_total")
    prof.export_chrome_trace(str(tmp_path / "trace.json"))
    events = json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
    assert ("privateuse1_runtime", "musaLaunchKernel") in {(event.get("cat"), event["name"]) for event in events}


@pytest.mark.filterwarnings("ignore:.*export_memory_timeline:FutureWarning")
def test_memory(tmp_path):
    with profile(activities=[CPU, CUDA], profile_memory=True, record_shapes=True, with_stack=True) as prof:
        x = torch.ones(1000, 1000, device="cuda")
        y = x @ x
        host = torch.ones(4000, 1000)
        del x, y, host
    rows = {row.key: row for row in prof.key_averages()}
    assert rows["aten::mm"].device_memory_usage >= 4_000_000
    assert "CUDA Mem" in prof.key_averages().table(sort_by="self_cuda_memory_usage")
    found = []
    for device in (None, "cuda:0", "cpu"):
        prof.export_memory_timeline(str(tmp_path / "memory.json"), **({} if device is None else {"device": device}))
        _, sizes = json.loads((tmp_path / "memory.json").read_text())
        found.append(max(map(sum, sizes)))
    assert 8_000_000 <= found[0] == found[1] < 16_000_000 <= found[2]


@shows_devices
def test_errors_and_threads():
    x = torch.ones(50, 50, device="cuda")
    with pytest.raises(KeyError), profile(activities=[CPU, CUDA]) as prof:
        x @ x
        raise KeyError
    assert "mm_kernel" in kernels(prof)

    def work():
        x.sin()

    threads = [threading.Thread(target=work) for _ in range(3)]
    with profile(activities=[CPU, CUDA]) as prof:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        x.cos()
    assert {"sin_kernel", "cos_kernel"} <= kernels(prof)
    with profile(activities=[CPU, CUDA]) as prof:  # nothing is left of what went before
        x.exp()
    assert kernels(prof) == {"exp_kernel"}
