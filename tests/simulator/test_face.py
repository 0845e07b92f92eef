"""The simulated torch_musa says what torch_musa 2.7.1 says: names, signatures, defects, and a working core.

Everything runs in child processes with TORCHADA=0, so that no translation hides what torch_musa itself does.
"""

import json
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent.parent
NAMES = Path(__file__).with_name("facts") / "torch_musa_2.7.1.json"

PREAMBLE = "import torchada.simulator\ntorchada.simulator.install()\nimport torch, torch_musa\n"
MARK = "\x01done"
SERVER = f"""
import json, sys, traceback
sys.stdout.flush()
{PREAMBLE}
for line in sys.stdin:
    error = None
    try:
        exec(compile(json.loads(line), "<test>", "exec"), {{"torch": torch, "torch_musa": torch_musa}})
    except BaseException:
        error = traceback.format_exc()
    print({MARK!r} + json.dumps(error), flush=True)
"""


def environment(**changes: str) -> dict[str, str]:
    env = {k: v for k, v in os.environ.items() if not k.startswith(("TORCHADA", "PYTHONPATH"))}
    return (
        env | {"TORCHADA": "0", "TORCHADA_SIM_DEVICES": "2", "OMP_NUM_THREADS": "1", "PYTHONPATH": str(ROOT)} | changes
    )


def fresh(code: str, preamble: str = PREAMBLE, **env: str) -> str:
    """Run code in a new process; its output. Fails with what it printed when it fails."""
    done = subprocess.run(
        [sys.executable, "-c", preamble + textwrap.dedent(code)],
        env=environment(**env),
        capture_output=True,
        text=True,
        timeout=280,
    )
    assert done.returncode == 0, f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def server():
    process = subprocess.Popen(
        [sys.executable, "-c", SERVER],
        env=environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    yield process
    process.stdin.close()
    assert process.wait(timeout=60) == 0


@pytest.fixture
def check(server):
    """Run code in the one process that the tests share which do not mind each other's traces."""

    def run(code: str) -> None:
        server.stdin.write(json.dumps(textwrap.dedent(code)) + "\n")
        server.stdin.flush()
        for line in server.stdout:
            if line.startswith(MARK):
                error = json.loads(line[len(MARK) :])
                assert error is None, error
                return
        pytest.fail("the child process died")

    return run


# ---- names and signatures ---------------------------------------------------------------------------


def test_namespace_at_import_is_the_vendors(check):
    check(
        f"""
        import json
        wanted = set(json.load(open({str(NAMES)!r}))["run_time_names"])
        shown = set(dir(torch_musa))
        assert wanted <= shown, wanted - shown
        tensor_types = {{n for n in shown if n.endswith("Tensor")}}
        late = {{"optim", "default_generators", "has_half"}}
        extra = {{n for n in shown - wanted - tensor_types - late if not n.startswith("_")}}
        assert not extra, extra
        """
    )


def test_native_members_are_there(check):
    check(
        f"""
        import json
        data = json.load(open({str(NAMES)!r}))
        for name, members in data["native_members"].items():
            found = getattr(torch_musa._MUSAC, name)
            missing = [m for m in members if not hasattr(found, m)]
            if missing:        # only a class that cannot be made yet may lack members
                try:
                    found()
                except NotImplementedError as error:
                    assert "simulated device" in str(error)
                else:
                    raise AssertionError((name, missing))
        """
    )


def test_patches_are_the_vendors(check):
    check(
        """
        assert torch.cuda._lazy_init is torch_musa._lazy_init and torch.cuda._lazy_call is torch_musa._lazy_call
        assert torch.random.fork_rng is torch_musa.fork_rng
        assert torch.Tensor.to.__module__ == torch.Tensor.pin_memory.__module__ == "torch_musa.core.tensor_attrs"
        assert torch.is_autocast_enabled.__name__ == "_musa_is_autocast_enabled"
        assert torch.UntypedStorage.is_cuda is torch.UntypedStorage.is_musa
        assert torch.version.musa == "40300" and torch.backends.mudnn is torch_musa.core.mudnn
        assert torch.utils.backend_registration._privateuse1_backend_name == "musa"
        activity = torch._C._profiler.ProfilerActivity
        assert activity.MUSA == activity.PrivateUse1
        """
    )


def test_what_is_not_simulated_says_so(check):
    check(
        """
        import importlib
        refusing = [
            lambda: torch_musa.musa_extension.load_inline("x", []),
            lambda: torch_musa.utils.simple_porting.SimplePorting("folder"),
            lambda: torch_musa.utils.musa_converter.main(),
            lambda: importlib.import_module("torch_musa._ext").online_softmax(),
            lambda: torch_musa._export.aot_load("x.so", "musa"),
        ]
        for number, call in enumerate(refusing):
            try:
                call()
            except NotImplementedError as error:
                assert "torch_musa" in str(error) and "simulated device has no" in str(error), error
            else:
                raise AssertionError(number)
        assert not hasattr(torch_musa._inductor, "no_such_name")
        """
    )


# ---- import and installation ------------------------------------------------------------------------


def test_import_loads_nothing_heavy_and_is_an_attribute_only():
    fresh(
        """
        import sys
        assert torch.musa is torch_musa and torch_musa.__simulated__ is True
        assert torch_musa.__version__ == "2.7.1+musa4.3.0"
        heavy = {"torch._dynamo", "torch._inductor", "setuptools", "torch.distributed.fsdp"} & set(sys.modules)
        assert not heavy, heavy
        for name in ("torch.musa", "torch.musa.memory"):
            try:
                __import__(name)
            except ModuleNotFoundError:
                pass
            else:
                raise AssertionError(name)
        torch.zeros(2, device="musa")            # torch's own lazy initialisation does not import it either
        assert "torch.musa" not in sys.modules
        assert torch.get_device_module("musa") is torch_musa
        """
    )


def test_install_twice_uninstall_and_state():
    fresh(
        """
        import sys, torchada.simulator as s
        assert "torch" not in sys.modules and not s.is_installed() and s.counters() == {}
        before = list(sys.meta_path)
        s.install(); s.install()
        assert len(sys.meta_path) == len(before) + 1 and s.is_installed()
        assert s.info()["installed"] and not s.info()["imported"] and s.info()["devices"] == 2
        s.uninstall()
        assert sys.meta_path == before and not s.is_installed()
        try:
            import torch_musa
        except ModuleNotFoundError:
            pass
        else:
            raise AssertionError
        s.install()
        import torch_musa
        assert s.info()["torch_musa"] == torch_musa.__version__ and not torch_musa.is_initialized()
        torch_musa.torch.ones(3, device="musa") + 1
        about = s.info()
        assert about["devices"] == 2 and "(simulated)" in about["name"], about
        assert about["memory_bytes"] == torch_musa.get_device_properties(0).total_memory
        assert sum(s.counters().values()) > 0
        try:
            s.uninstall()
        except RuntimeError as error:
            assert "new process" in str(error)
        else:
            raise AssertionError
        """,
        preamble="",
    )


def test_install_refuses_beside_a_real_torch_musa(tmp_path):
    (tmp_path / "torch_musa.py").write_text("")
    code = """
        import sys, torchada.simulator as s
        if {imported}:
            import torch_musa
        try:
            s.install()
        except RuntimeError as error:
            assert "torch_musa" in str(error) and {path!r} in str(error), error
        else:
            raise AssertionError
        assert not s.is_installed()
    """
    path = f"{ROOT}{os.pathsep}{tmp_path}"
    for imported in (True, False):
        fresh(code.format(imported=imported, path=str(tmp_path)), preamble="", PYTHONPATH=path)


# ---- initialisation ---------------------------------------------------------------------------------


def test_lazy_initialisation_and_its_quirks():
    fresh(
        """
        from torch_musa.core import _lazy_init as lazy
        assert not torch_musa.is_initialized() and not lazy._initialized
        for name in ("default_generators", "has_half", "_get_device_properties"):
            assert not hasattr(torch_musa, name), name
        assert torch_musa.memory_stats() == {} and torch_musa.memory_allocated() == 0
        seen = []
        torch_musa._lazy_call(lambda: seen.append(torch_musa.current_device()))
        torch_musa.manual_seed_all(7)            # waits
        torch_musa.device_count(), torch_musa.is_available(), torch.device("musa:1"), torch_musa.get_arch_list()
        assert not torch_musa.is_initialized() and seen == []
        first = torch.rand(3, device="musa")
        assert torch_musa.is_initialized() and seen == [0]
        assert len(torch_musa.default_generators) == 2 and torch_musa.has_half is True
        assert torch_musa._initialized is False  # copied at import, never updated
        torch_musa.manual_seed_all(7)
        assert torch.equal(torch.rand(3, device="musa"), first)
        torch_musa._lazy_call(lambda: seen.append(1))
        assert seen == [0, 1]
        """
    )


FIRST_USES = [
    'torch.empty(1, device="musa")',
    'torch.empty(0, device="musa")',
    "torch.ones(1).musa()",
    'torch.ones(1).to("musa")',
    'torch.Generator("musa")',
    "torch_musa.set_device(0)",
    "torch_musa.Stream()",
    "torch_musa.current_device()",
    "torch_musa.synchronize()",
    "torch_musa.current_stream()",
    "torch_musa.get_device_name()",
    "torch_musa.mem_get_info()",
    "torch.nn.Linear(1, 1).musa()",
    "torch_musa.FloatTensor([1.0])",
    "torch_musa.core._lazy_init.init()",
    "torch_musa.musart()",
    "torch.cuda._lazy_init()",
    "torch.accelerator.current_stream()",
]


def test_first_use_initialises():
    fresh(
        f"""
        import os
        for use in {FIRST_USES!r}:
            child = os.fork()                    # a new process each, without the time to import torch
            if child == 0:
                seen = []
                torch_musa._lazy_call(lambda: seen.append(1))
                exec(use)
                os._exit(0 if torch_musa.is_initialized() and seen == [1] else 1)
            assert os.waitpid(child, 0)[1] == 0, use
        assert not torch_musa.is_initialized()
        """
    )


def test_a_failing_queued_call_tells_who_queued_it():
    fresh(
        """
        def queue_it():
            torch_musa._lazy_call(lambda: 1 / 0)
        queue_it()
        try:
            torch_musa.current_device()
        except Exception as error:
            assert type(error).__name__ == "DeferredMusaCallError"
            assert "queue_it" in str(error) and "division" in str(error)
        else:
            raise AssertionError
        """
    )


def test_threads_initialise_once():
    fresh(
        """
        import threading
        calls, errors = [], []
        torch_musa._lazy_call(lambda: calls.append(threading.get_ident()))
        start = threading.Barrier(8)
        def work():
            try:
                start.wait()
                torch.ones(4, device="musa") + torch_musa.current_device()
            except BaseException as error:
                errors.append(error)
        threads = [threading.Thread(target=work) for _ in range(8)]
        [t.start() for t in threads]; [t.join() for t in threads]
        assert errors == [] and len(calls) == 1, (errors, calls)
        """
    )


def test_forked_child_is_told_to_spawn():
    fresh(
        """
        import os
        torch.ones(1, device="musa")
        read, write = os.pipe()
        if os.fork() == 0:
            text = ""
            try:
                assert torch_musa._is_in_bad_fork() and not torch_musa.is_initialized()
                torch.manual_seed(0)             # must not raise in a bad fork
                for use in (lambda: torch.ones(1, device="musa"), torch_musa.current_device):
                    try:
                        use()
                    except RuntimeError as error:
                        text += str(error)
            except BaseException as error:
                text = repr(error)
            os.write(write, text.encode()); os._exit(0)
        os.close(write)
        text = os.fdopen(read).read()
        assert text.count("Cannot re-initialize MUSA in forked subprocess") == 2 and "'spawn'" in text, text
        """
    )


def test_fork_before_initialisation_is_fine():
    fresh(
        """
        import os
        torch_musa.is_available()
        child = os.fork()
        if child == 0:
            os._exit(0 if torch.ones(2, device="musa").sum().item() == 2 else 1)
        assert os.waitpid(child, 0)[1] == 0
        """
    )


def test_build_container_has_no_device():
    fresh(
        """
        assert torch_musa.is_available() is False and torch_musa.device_count() == 0
        assert torch_musa.get_arch_list() == [] and torch_musa.amp_definitely_not_available() is True
        torch.manual_seed(1)                     # queued, never runs
        for use in (torch_musa.current_device, torch_musa.synchronize, lambda: torch.ones(1, device="musa"),
                    lambda: torch.ones(1).musa(), lambda: torch.cuda._lazy_init()):
            try:
                use()
            except RuntimeError as error:
                assert "No MUSA GPUs are available" in str(error), error
            else:
                raise AssertionError(use)
        assert torch.accelerator.is_available() is False
        assert torch.ones(2).sum().item() == 2
        """,
        TORCHADA_SIM_DEVICES="0",
    )


# ---- devices ----------------------------------------------------------------------------------------


def test_functions_reject_a_cuda_device(check):
    check(
        """
        names = ["set_device", "synchronize", "get_device_name", "get_device_properties", "get_device_capability",
                 "current_stream", "default_stream", "memory_allocated", "memory_stats", "mem_get_info", "device",
                 "reset_peak_memory_stats", "max_memory_allocated", "memory_summary", "memory_reserved"]
        for name in names:
            for device in ("cuda", "cuda:0", torch.device("cuda", 1), "cpu"):
                try:
                    getattr(torch_musa, name)(device)
                except ValueError as error:
                    assert "Expected a musa device" in str(error) and str(device) in str(error), (name, error)
                else:
                    raise AssertionError((name, device))
        state = torch_musa.get_rng_state()
        for call in (lambda: torch_musa.get_rng_state("cuda"), lambda: torch_musa.set_rng_state(state, "cuda")):
            try:
                call()
            except ValueError:
                pass
            else:
                raise AssertionError
        """
    )


def test_devices_current_and_guards(check):
    check(
        """
        assert torch_musa.current_device() == 0
        with torch_musa.device(1):
            assert torch_musa.current_device() == 1 and torch.ones(1, device="musa").device.index == 1
            with torch_musa.device_of(torch.ones(1, device="musa:0")):
                assert torch_musa.current_device() == 0
            with torch_musa.device_of(torch.ones(1)), torch_musa.device(-1), torch_musa.device(None):
                assert torch_musa.current_device() == 1
            with torch_musa._DeviceGuard(0):
                assert torch_musa.current_device() == 0
            with torch_musa.core._lazy_init.device("musa:0"):
                assert torch_musa.current_device() == 0
        assert torch_musa.current_device() == 0
        torch_musa.set_device("musa:1"); torch_musa.set_device(-1)
        assert torch_musa.current_device() == 1 and torch.accelerator.current_device_index() == 1
        torch_musa.set_device(torch.device("musa", 0))
        assert torch_musa._exchange_device(1) == 0 and torch_musa._maybe_exchange_device(0) == 1
        assert torch_musa.can_device_access_peer(0, 1) in (True, False)
        for bad in (2, "musa:7"):
            for call in (torch_musa.set_device, torch_musa.get_device_properties):
                try:
                    call(bad)
                except (RuntimeError, AssertionError) as error:
                    assert "invalid device" in str(error).lower(), error
                else:
                    raise AssertionError(bad)
        """
    )


def test_properties_have_seven_fields(check):
    check(
        """
        properties = torch_musa.get_device_properties(0)
        fields = {n for n in dir(properties) if not n.startswith("_")}
        assert fields == {"name", "major", "minor", "is_multi_gpu_board", "is_integrated",
                          "multi_processor_count", "total_memory"}, fields
        assert "(simulated)" in properties.name == torch_musa.get_device_name(0)
        assert torch_musa.get_device_capability() == (properties.major, properties.minor)
        assert torch_musa.mem_get_info()[1] == properties.total_memory
        assert isinstance(properties, torch_musa.core.device._MusaDeviceProperties)
        try:
            torch_musa.get_device_properties()   # the argument is required
        except TypeError:
            pass
        else:
            raise AssertionError
        assert torch_musa.is_bf16_supported() is True and torch_musa.is_bf16_supported(False) in (True, False)
        assert torch_musa.core._utils._get_musa_arch() == properties.major * 10 + properties.minor
        assert torch_musa.get_arch_list() and all(a.isdigit() for a in torch_musa.get_arch_list())
        """
    )


def test_device_count_is_cached_from_the_first_call():
    fresh(
        """
        import torch_musa.core.device as d
        assert torch_musa.device_count() == 2
        torch_musa._MUSAC._musa_getDeviceCount = lambda: 5
        d._MUSAC._musa_getDeviceCount = lambda: 5
        assert torch_musa.device_count() == 2 and torch_musa.is_available()
        """
    )


# ---- streams and events -----------------------------------------------------------------------------


def test_streams(check):
    check(
        """
        default = torch_musa.default_stream()
        assert torch_musa.current_stream() == default and hash(torch_musa.current_stream()) == hash(default)
        side = torch_musa.Stream(priority=-1)
        assert side != default and side.priority == -1 and side.device == torch.device("musa:0")
        assert isinstance(side, torch.Stream) and isinstance(side, torch_musa._MUSAC._MusaStreamBase)
        assert isinstance(side.musa_stream, int) and not hasattr(side, "cuda_stream")
        assert "torch.musa.Stream" in repr(side) and side._as_parameter_.value == side.musa_stream
        with torch_musa.stream(side):
            assert torch_musa.current_stream() == side
            with torch_musa.stream(None):
                assert torch_musa.current_stream() == side
        assert torch_musa.current_stream() == default
        other = torch_musa.Stream(device="musa:1")
        with torch_musa.stream(other):
            assert torch_musa.current_device() == 1 and torch_musa.current_stream() == other
            assert torch_musa.current_stream("musa:0") == default
        assert torch_musa.current_device() == 0
        assert torch_musa.current_stream(1) == torch_musa.default_stream(1)
        torch_musa.set_stream(side); assert torch_musa.current_stream() == side
        torch_musa.set_stream(None); torch_musa.set_stream(default)
        side.wait_stream(default); side.wait_event(default.record_event()); side.synchronize()
        assert side.query() is True
        again = torch_musa.Stream(stream_id=side.stream_id, device_index=0, device_type=side.device_type)
        assert again == side
        assert torch_musa.ExternalStream(side.musa_stream) == side
        least, greatest = torch_musa.Stream.priority_range()
        assert least >= greatest
        """
    )


def test_events(check):
    check(
        """
        import time
        start, end = torch_musa.Event(enable_timing=True), torch_musa.Event(enable_timing=True)
        assert isinstance(start, torch.Event) and not hasattr(start, "cuda_event")
        assert "uninitialized" in repr(start)
        start.record(); time.sleep(0.02); end.record(torch_musa.current_stream()); end.synchronize()
        assert 15 < start.elapsed_time(end) < 5000 and end.query() is True
        assert isinstance(start.musa_event, int) and "torch.musa.Event 0x" in repr(start)
        assert start.device == torch.device("musa:0")
        start.wait(); start.wait(torch_musa.Stream())
        try:
            torch_musa.Event().elapsed_time(end)
        except (RuntimeError, ValueError):
            pass
        else:
            raise AssertionError("events without timing have no time")
        """
    )


def test_generic_streams_events_accelerator(check):
    check(
        """
        stream = torch.Stream(device="musa")
        assert stream.device.type == "musa"
        with stream:
            assert torch.accelerator.current_stream() == stream
        first, last = torch.Event(device="musa", enable_timing=True), torch.Event(device="musa", enable_timing=True)
        first.record(); last.record(stream); last.synchronize()
        assert first.elapsed_time(last) >= 0
        assert torch.accelerator.current_accelerator() == torch.device("musa")
        assert torch.accelerator.is_available() and torch.accelerator.device_count() == 2
        torch.accelerator.set_device_index(1)
        assert torch_musa.current_device() == 1
        torch.accelerator.set_device_index(0)
        torch.accelerator.synchronize()
        assert torch.accelerator.current_stream(0).stream_id == torch_musa.current_stream(0).stream_id
        """
    )


# ---- memory -----------------------------------------------------------------------------------------


def test_memory(check):
    check(
        """
        torch_musa.empty_cache(); torch_musa.reset_peak_memory_stats()
        before = torch_musa.memory_allocated()
        x = torch.empty(1 << 20, dtype=torch.uint8, device="musa")
        assert torch_musa.memory_allocated() - before >= 1 << 20
        peak = torch_musa.max_memory_allocated()
        del x
        assert torch_musa.memory_allocated() == before and torch_musa.max_memory_allocated("musa:0") == peak
        torch_musa.reset_peak_memory_stats(); assert torch_musa.max_memory_allocated() == before
        torch_musa.reset_accumulated_memory_stats()
        assert torch_musa.max_memory_reserved() >= torch_musa.memory_reserved() >= 0
        stats = torch_musa.memory_stats()
        assert list(stats) == sorted(stats) and stats["num_ooms"] >= 0 and "num_device_alloc" in stats
        nested = torch_musa.memory_stats_as_nested_dict()
        assert set(nested) >= {"allocation", "segment", "active", "inactive_split", "allocated_bytes", "reserved_bytes"}
        assert len(torch_musa.memory_stats_all()) == 2
        y = torch.empty(1 << 22, device="musa")
        assert any(s["device"] == 0 and s["total_size"] >= 1 << 22 for s in torch_musa.memory_snapshot())
        assert "segment_pool_id" not in torch_musa.memory_snapshot()[0]
        summary = torch_musa.memory_summary()
        assert "Allocated memory" in summary and "large pool" in summary
        assert "large pool" not in torch_musa.memory_summary(abbreviated=True)
        free, total = torch_musa.mem_get_info("musa:0")
        assert 0 < free < total
        assert torch_musa.get_allocator_backend() == "native"
        for call, kind in ((lambda: torch_musa.memory_snapshot(None), TypeError),
                           (torch_musa.reset_max_memory_allocated, NameError),
                           (torch_musa.reset_max_memory_cached, NameError),
                           (lambda: torch_musa.set_per_process_memory_fraction(1), TypeError),
                           (lambda: torch_musa.set_per_process_memory_fraction(1.5), ValueError)):
            try:
                call()
            except kind:
                pass
            else:
                raise AssertionError((call, kind))
        """
    )


def test_out_of_memory(check):
    check(
        """
        assert torch_musa.OutOfMemoryError is torch.OutOfMemoryError
        torch_musa.set_per_process_memory_fraction(0.01)
        try:
            torch.empty(torch_musa.mem_get_info()[1] // 2, dtype=torch.uint8, device="musa")
        except torch.OutOfMemoryError as error:
            assert "MUSA out of memory" in str(error), error
        else:
            raise AssertionError
        finally:
            torch_musa.set_per_process_memory_fraction(1.0)
        """
    )


# ---- random numbers ---------------------------------------------------------------------------------


def test_random(check):
    check(
        """
        draw = lambda device="musa": torch.rand(4, device=device)
        torch.manual_seed(3); a = draw(); b = draw("musa:1")
        torch.manual_seed(3); assert torch.equal(draw(), a) and torch.equal(draw("musa:1"), b)
        assert torch_musa.initial_seed() == 3
        state = torch_musa.get_rng_state(); assert state.device.type == "cpu" and state.dtype == torch.uint8
        a = draw(); torch_musa.set_rng_state(state); assert torch.equal(draw(), a)
        states = torch_musa.get_rng_state_all(); assert len(states) == 2
        b = draw("musa:1"); torch_musa.set_rng_state_all(states); assert torch.equal(draw("musa:1"), b)
        with torch_musa.device(1):
            torch_musa.manual_seed(5); a = draw()
        torch_musa.manual_seed_all(5); assert torch.equal(draw("musa:1"), a)
        torch_musa.seed(); torch_musa.seed_all()
        assert torch_musa.default_generators[0].initial_seed() == torch_musa.default_generators[1].initial_seed()
        with torch.random.fork_rng():
            a = draw()
        assert torch.equal(draw(), a)
        with torch_musa.fork_rng(devices=[1]):
            a = draw("musa:1")
        assert torch.equal(draw("musa:1"), a)
        cpu = torch.get_rng_state(); draw(); assert torch.equal(torch.get_rng_state(), cpu)
        g = torch.Generator("musa"); g.manual_seed(9)
        assert g.device == torch.device("musa:0")
        a = torch.randn(3, generator=g, device="musa"); g.manual_seed(9)
        assert torch.equal(torch.randn(3, generator=g, device="musa"), a)
        """
    )


def test_seed_before_initialisation_is_applied_in_order():
    fresh(
        """
        torch_musa.manual_seed(1); torch_musa.manual_seed_all(2)
        assert not torch_musa.is_initialized()
        assert torch_musa.initial_seed() == 2 and torch_musa.default_generators[1].initial_seed() == 2
        """
    )
    fresh(
        """
        torch.manual_seed(2); torch_musa.manual_seed(1)
        assert torch_musa.initial_seed() == 1 and torch_musa.default_generators[1].initial_seed() == 2
        """
    )


# ---- tensors, modules, storages ---------------------------------------------------------------------


def test_tensor_and_module_methods(check):
    check(
        """
        x = torch.arange(4.0)
        y = x.musa()
        assert y.is_musa and not x.is_musa and y.device == torch.device("musa:0") and y.musa() is y
        assert x.musa(1).device.index == 1 and x.musa("musa:1", non_blocking=True).device.index == 1
        assert x.to("musa").is_musa and x.orig_to("musa").is_musa and y.to("cpu").equal(x)
        assert torch.Tensor.to(y, torch.float64).dtype == torch.float64
        p = x.pin_memory()
        assert p.is_pinned() and p.is_pinned("musa") and not x.is_pinned() and x.pin_memory("musa").is_pinned()
        assert p.orig_is_pinned()
        m = torch.nn.Linear(2, 2)
        assert m.musa() is m and m.weight.is_musa and m.musa(1).weight.device.index == 1
        assert m.to("musa").weight.device.index == 0
        try:
            x.musa("cuda:0")
        except (ValueError, RuntimeError):
            pass
        else:
            raise AssertionError
        """
    )


def test_legacy_tensor_types(check):
    check(
        """
        F = torch_musa.FloatTensor
        x = F([1.0, 2.0])
        assert x.is_musa and x.dtype == torch.float32 and x.tolist() == [1.0, 2.0]
        assert F(2, 3).shape == (2, 3) and F().numel() == 0 and F(torch.Size([4])).shape == (4,)
        assert F(2, device="musa:1").device.index == 1
        assert isinstance(x, F) and not isinstance(x.cpu(), F) and not isinstance(x, torch_musa.LongTensor)
        assert x.type() == "torch.musa.FloatTensor" and F.__name__ == "FloatTensor"
        assert repr(F) == "<class 'torch.musa.FloatTensor'>"
        assert torch.ones(2).type(F).is_musa and torch.ones(2).type("torch.musa.LongTensor").dtype == torch.int64
        assert torch_musa.BFloat16Tensor([1]).dtype == torch.bfloat16 and len(torch_musa._tensor_classes) == 10
        """
    )


def test_storages(check):
    check(
        """
        import warnings
        warnings.simplefilter("ignore")
        s = torch.ones(3, device="musa").untyped_storage()
        assert s.is_musa and s.is_cuda and s.is_shared() and s.device == torch.device("musa:0")
        assert torch.ones(3).untyped_storage().musa().is_musa and not torch.ones(3).untyped_storage().is_cuda
        assert not torch.ones(3).untyped_storage().is_shared_old()
        t = torch_musa.FloatStorage(4)
        assert t.device.type == "musa" and t.dtype == torch.float32 and t.size() == 4
        typed = torch.ones(3, device="musa").storage()
        assert isinstance(typed, torch_musa.FloatStorage) and not isinstance(typed, torch_musa.LongStorage)
        assert torch_musa.BFloat16Storage._dtype == torch.bfloat16
        assert not hasattr(torch_musa, "ComplexFloatStorage")
        """
    )


def test_save_and_load(check, tmp_path):
    check(
        f"""
        import io
        path = {str(tmp_path / "m.pt")!r}
        torch.save({{"w": torch.arange(3.0, device="musa:1"), "c": torch.ones(2)}}, path)
        for weights_only in (True, False):
            back = torch.load(path, weights_only=weights_only)
            assert back["w"].device == torch.device("musa:1") and back["w"].tolist() == [0, 1, 2]
            assert back["c"].device.type == "cpu"
            assert torch.load(path, map_location="cpu", weights_only=weights_only)["w"].device.type == "cpu"
            assert torch.load(path, map_location="musa", weights_only=weights_only)["w"].device.index == 0
            moved = torch.load(path, map_location={{"musa:1": "musa:0"}}, weights_only=weights_only)
            assert moved["w"].device.index == 0
        """
    )


def test_a_cuda_tagged_file_is_refused(check):
    check(
        """
        import io
        registry = torch.serialization._package_registry
        assert [key for key, *_ in registry] == sorted(key for key, *_ in registry) and registry[-1][0] == 999
        buffer = io.BytesIO()
        original = torch.serialization.location_tag
        torch.serialization.location_tag = lambda storage: "cuda:0"
        try:
            torch.save(torch.ones(2), buffer)
        finally:
            torch.serialization.location_tag = original
        for weights_only in (True, False):
            buffer.seek(0)
            try:
                torch.load(buffer, weights_only=weights_only)
            except RuntimeError as error:
                assert "map_location" in str(error) and "cuda:0" in str(error), error
            else:
                raise AssertionError
            buffer.seek(0)
            assert torch.load(buffer, map_location="musa", weights_only=weights_only).is_musa
        """
    )


# ---- amp --------------------------------------------------------------------------------------------


def test_autocast(check):
    check(
        """
        a, b = torch.randn(4, 4, device="musa"), torch.randn(4, 4, device="musa")
        assert torch_musa.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
        assert not torch.is_autocast_enabled() and not torch_musa.amp_definitely_not_available()
        for context, dtype in ((torch.autocast("musa"), torch.float16),
                               (torch.autocast("musa", dtype=torch.bfloat16), torch.bfloat16),
                               (torch_musa.amp.autocast(), torch.float16),
                               (torch_musa.amp.autocast(True, torch.bfloat16, False), torch.bfloat16)):
            with context:
                assert torch.is_autocast_enabled() and torch.is_autocast_enabled("musa")  # no argument means MUSA
                assert not torch.is_autocast_enabled("cpu")
                assert (a @ b).dtype == dtype and (a @ b).softmax(0).dtype == torch.float32
            assert not torch.is_autocast_enabled() and (a @ b).dtype == torch.float32
        torch.set_autocast_enabled(True)
        assert torch.is_autocast_enabled("musa") and not torch.is_autocast_enabled("cpu")
        torch.set_autocast_enabled("musa", False); assert not torch.is_autocast_enabled()
        assert torch_musa.amp.autocast()(lambda: (a @ b).dtype)() == torch.float16
        """
    )


def test_grad_scaler_and_custom_functions(check):
    check(
        """
        class Double(torch.autograd.Function):
            @staticmethod
            @torch_musa.amp.custom_fwd(cast_inputs=torch.float32)
            def forward(ctx, x):
                assert not torch.is_autocast_enabled()
                return x * 2
            @staticmethod
            @torch_musa.amp.custom_bwd
            def backward(ctx, grad):
                return grad * 2
        for scaler in (torch_musa.amp.GradScaler(init_scale=128.0), torch.amp.GradScaler("musa", init_scale=128.0)):
            layer = torch.nn.Linear(3, 3).musa()
            optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
            with torch.autocast("musa"):
                loss = Double.apply(layer(torch.ones(2, 3, device="musa"))).float().pow(2).mean()
            before = layer.weight.detach().clone()
            scaler.scale(loss).backward(); scaler.step(optimizer); scaler.update()
            assert scaler.is_enabled() and scaler.get_scale() == 128.0 and not torch.equal(before, layer.weight)
            layer.weight.grad.fill_(float("inf"))
            scaler.unscale_(optimizer); scaler.step(optimizer); scaler.update()
            assert scaler.get_scale() == 64.0
        """
    )


# ---- data loading, processes, the rest --------------------------------------------------------------


def test_pinned_data_loader():
    fresh(
        """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.arange(8.0), torch.arange(8))
        for workers in (0, 2):
            seen = []
            for x, y in DataLoader(data, batch_size=4, pin_memory=True, num_workers=workers):
                assert x.is_pinned() and y.is_pinned()
                seen += x.to("musa", non_blocking=True).tolist()
            assert seen == list(range(8)), seen
        """
    )


def test_graph_names(check):
    check(
        """
        assert torch_musa.graphs is torch_musa.musa_graph.graphs and not torch_musa.is_current_stream_capturing()
        assert torch_musa.MUSAGraph.__mro__[1] is torch_musa._MUSAC._MUSAGraph
        try:
            torch_musa.graph(cuda_graph=None)
        except TypeError as error:
            assert "graph" in str(error), error
        else:
            raise AssertionError

        class Refusing:
            def capture_begin(self, *args, **kwargs):
                assert torch_musa.current_stream() != before
                raise NotImplementedError("graph capture")

        before = torch_musa.current_stream()
        try:
            with torch_musa.graph(Refusing()):
                raise AssertionError
        except NotImplementedError:
            pass
        assert torch_musa.current_stream() == before   # the stream is given back
        assert isinstance(torch_musa.graph_pool_handle(), tuple)
        """
    )


def test_small_functions(check):
    check(
        """
        torch_musa._sleep(10); torch_musa.ipc_collect()
        assert torch_musa.musart() is torch_musa._MUSAC._musart
        torch_musa.check_error(0)
        try:
            torch_musa.check_error(2)
        except torch_musa.MusaError as error:
            assert "(2)" in str(error)
        else:
            raise AssertionError
        assert isinstance(torch_musa.mccl.version(), tuple) and len(torch_musa.mccl.version()) >= 3
        flags = torch.backends.mudnn
        assert isinstance(flags.version(), int) and flags.allow_tf32 in (True, False)
        before = flags.allow_tf32
        with flags.flags(allow_tf32=not before):
            assert flags.allow_tf32 is not before
        assert flags.allow_tf32 is before
        flags.allow_tf32 = not before; assert flags.allow_tf32 is not before; flags.allow_tf32 = before
        assert isinstance(torch_musa.current_blas_handle(), int) and isinstance(torch_musa.current_blaslt_handle(), int)
        assert torch_musa._autoload() is None
        assert torch.distributed.is_mccl_available()
        """
    )


def test_dynamo_gets_the_device_interface_when_it_is_imported():
    fresh(
        """
        import sys
        assert "torch._dynamo" not in sys.modules
        watching = [f for f in sys.meta_path if type(f).__module__ == "torch_musa._late"]
        assert len(watching) == 1 and watching[0].find_spec("no.such.module") is None
        folder = [torch.__path__[0] + "/_dynamo"]
        assert watching[0].find_spec("torch._dynamo.device_interface", folder) is not None   # looked up, not used
        from torch._dynamo.device_interface import get_interface_for_device
        assert "torch._dynamo.device_interface" not in watching[0].pending
        found = get_interface_for_device("musa")
        assert found is torch_musa.MusaInterface is get_interface_for_device("musa:1")
        assert found.is_available() and found.device_count() == 2 and found.current_device() == 0
        assert found.Worker.get_device_properties("musa:1").name == torch_musa.get_device_name(1)
        assert found.get_raw_stream(0) == torch_musa.current_stream(0).musa_stream
        assert isinstance(found.get_compute_capability(), int)
        """
    )


def test_helpers_of_this_file_can_fail(check):
    with pytest.raises(AssertionError, match="ZeroDivisionError"):
        check("1 / 0")
    with pytest.raises(AssertionError, match="exit code 1"):
        fresh("raise SystemExit(1)", preamble="")
