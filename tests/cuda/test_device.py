"""torch.cuda: devices, their properties, initialisation, the runtime object."""

import threading

import pytest
import torch
import torch_musa

import torchada


@pytest.fixture(autouse=True)
def first_device():
    torch.cuda.set_device(0)
    yield
    torch.cuda.set_device(0)


def test_device_count():
    assert torch.cuda.device_count() == torch.cuda._device_count_nvml() == 2
    assert torch.cuda.device_count is torch_musa.device_count  # no wrapper on a hot call


@pytest.mark.parametrize("device", [1, "cuda:1", "musa:1", torch.device("cuda:1"), torch.device("cuda", 1)])
def test_set_device(device):
    torch.cuda.set_device(device)
    assert torch.cuda.current_device() == 1
    assert torch.ones(1, device="cuda").get_device() == 1


def test_set_device_negative_is_a_no_op():
    torch.cuda.set_device(1)
    torch.cuda.set_device(-1)
    assert torch.cuda.current_device() == 1


@pytest.mark.parametrize(
    "device,error,text",
    [
        (99, RuntimeError, "invalid device ordinal"),
        ("cuda:99", RuntimeError, "invalid device ordinal"),
        ("cpu", ValueError, "Expected a (cuda|musa) device, but got: cpu"),
        (torch.device("cpu"), ValueError, "Expected a (cuda|musa) device, but got: cpu"),
        ("gpu", RuntimeError, "gpu"),
        ("cuda:x", RuntimeError, "cuda:x"),
        ("cuda", ValueError, "index"),
        (None, ValueError, "index"),
        (1.5, ValueError, "1.5"),
    ],
)
def test_bad_devices(device, error, text):
    with pytest.raises(error, match=f"(?i){text}"):
        torch.cuda.set_device(device)
    assert torch.cuda.current_device() == 0


def test_device_context():
    for device in (1, "cuda:1", torch.device("cuda:1"), torch.cuda.device(1)):
        with torch.cuda.device(device):
            assert torch.cuda.current_device() == 1
            assert torch.empty(1, device="cuda").device == torch.device("cuda:1")
        assert torch.cuda.current_device() == 0
    for nothing in (None, -1, "cuda"):
        with torch.cuda.device(nothing):
            assert torch.cuda.current_device() == 0
    with torch.cuda.device(1), torch.cuda.device(None):
        assert torch.cuda.current_device() == 1


def test_device_context_nests_and_survives_an_exception():
    with pytest.raises(KeyError), torch.cuda.device(1):
        with torch.cuda.device(0):
            assert torch.cuda.current_device() == 0
        assert torch.cuda.current_device() == 1
        raise KeyError
    assert torch.cuda.current_device() == 0


@pytest.mark.parametrize("device", ["cpu", torch.device("cpu")])
def test_device_context_refuses_cpu(device):
    with pytest.raises(ValueError, match="but got: cpu"):
        torch.cuda.device(device)


def test_device_of():
    x = torch.ones(1, device="cuda:1")
    with torch.cuda.device_of(x):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(x.untyped_storage()):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.ones(1)):
        assert torch.cuda.current_device() == 0
    assert issubclass(torch.cuda.device_of, torch.cuda.device)


def test_the_current_device_is_per_thread():
    torch.cuda.set_device(1)
    seen = []
    thread = threading.Thread(target=lambda: seen.append(torch.cuda.current_device()))
    thread.start()
    thread.join()
    assert seen == [0]


def test_get_device_index():
    index = torch.cuda._utils._get_device_index
    assert index is torch.cuda._get_device_index is torch.cuda.memory._get_device_index
    assert [index(device) for device in (1, "cuda:1", torch.device("cuda:1"), torch.cuda.device(1))] == [1, 1, 1, 1]
    with torch.cuda.device(1):
        assert index(None, optional=True) == index("cuda", optional=True) == 1
    assert index("cpu", allow_cpu=True) == -1
    with pytest.raises(ValueError):
        index("cpu")
    with pytest.raises(ValueError):
        index(None)


def test_nvml_device_index():
    assert torch.cuda._get_nvml_device_index("cuda:1") == 1
    assert torch.cuda._get_nvml_device_index is torch.cuda.memory._get_nvml_device_index
    with pytest.raises(RuntimeError, match="not visible"):
        torch.cuda._get_nvml_device_index(99)


def test_synchronize():
    torch.cuda.synchronize()
    for device in (0, "cuda:1", torch.device("cuda"), None):
        torch.cuda.synchronize(device)
    assert torch.cuda.current_device() == 0
    assert torch.cuda.synchronize is torch_musa.synchronize
    with pytest.raises(ValueError, match="but got: cpu"):
        torch.cuda.synchronize("cpu")


def test_properties():
    properties = torch.cuda.get_device_properties()
    assert type(properties) is torch.cuda._CudaDeviceProperties
    for device in (0, "cuda:1", "cuda", torch.device("cuda:0"), None):
        assert torch.cuda.get_device_properties(device).name == torch.cuda.get_device_name(device)
    assert torch.cuda.get_device_properties("cuda:0") == properties != torch.cuda.get_device_properties(1)
    native = torch_musa.get_device_properties(0)
    for field in (
        "name",
        "major",
        "minor",
        "total_memory",
        "multi_processor_count",
        "is_integrated",
        "is_multi_gpu_board",
    ):
        assert getattr(properties, field) == getattr(native, field)
        assert field in dir(properties)
    assert properties.gcnArchName == properties.name
    assert torch.cuda.get_device_capability() == (properties.major, properties.minor)
    assert f"name='{properties.name}'" in repr(properties) and repr(properties).startswith("_CudaDeviceProperties(")


@pytest.mark.parametrize("field", ["warp_size", "L2_cache_size", "shared_memory_per_block_optin", "uuid"])
def test_properties_that_nobody_can_tell_say_so(field, monkeypatch):
    from torchada.shims import cuda_device

    monkeypatch.setattr(cuda_device, "runtime_library", lambda: None)
    properties = torch.cuda.get_device_properties()
    with pytest.raises(torchada.NotOnMusa, match=field):
        getattr(properties, field)
    assert not hasattr(properties, field)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = properties.nonsense


def test_properties_come_from_the_runtime_where_it_is(monkeypatch):
    from torchada.shims import cuda_device

    class Runtime:
        def musaDeviceGetAttribute(self, value, attribute, index):
            value._obj.value = 100 * index + attribute
            return 0 if attribute != 38 else 1

    monkeypatch.setattr(cuda_device, "runtime_library", Runtime)
    properties = torch.cuda.get_device_properties(1)
    assert (properties.warp_size, properties.max_threads_per_multi_processor) == (110, 139)
    with pytest.raises(torchada.NotOnMusa, match="error 1"):
        _ = properties.L2_cache_size


@pytest.mark.parametrize("device", [99, -1, "cuda:99"])
def test_properties_of_a_missing_device(device):
    with pytest.raises((AssertionError, RuntimeError), match=r"(?i)invalid device (id|ordinal)"):
        torch.cuda.get_device_properties(device)


def test_peer_access():
    assert torch.cuda.can_device_access_peer(0, 1) is torch_musa.can_device_access_peer(0, 1) is True
    assert torch.cuda.can_device_access_peer("cuda:0", torch.device("cuda:1")) is True
    with pytest.raises(AssertionError, match="Invalid peer device id"):
        torch.cuda.can_device_access_peer(0, 99)
    with pytest.raises(AssertionError, match="Invalid device id"):
        torch.cuda.can_device_access_peer(99, 0)


def test_arch_list_and_flags():
    archs = torch.cuda.get_arch_list()
    assert archs and all(arch.startswith("mp_") and int(arch.split("_")[1]) > 0 for arch in archs)
    assert torch.cuda.get_gencode_flags() == " ".join(f"--offload-arch={arch}" for arch in archs)


def test_capabilities():
    assert torch.cuda.is_bf16_supported() is True
    assert torch.cuda.is_bf16_supported(including_emulation=False) is True
    assert torch.cuda.is_tf32_supported() is torch_musa.is_tf32_supported()


def test_device_memory_used():
    free, total = torch.cuda.mem_get_info(1)
    assert torch.cuda.device_memory_used("cuda:1") == total - free


def test_initialisation_state(run_python):
    assert torch.cuda.has_half is True
    assert torch.cuda.has_magma is torch._C._has_magma
    done = run_python(
        """
        import torchada, torch
        print(torch.cuda.is_initialized(), torch.cuda._initialized, torch.cuda.default_generators, torch.cuda.has_half)
        print(torch.cuda._is_in_bad_fork())
        torch.cuda.init()
        torch.cuda.init()
        print(torch.cuda.is_initialized(), torch.cuda._initialized, len(torch.cuda.default_generators))
        torch.cuda.ipc_collect()
        torch.cuda._lazy_init()
        """
    )
    assert done.stdout.splitlines() == ["False False () True", "False", "True True 2"]


def test_lazy_initialisation_internals():
    for name in ("_tls", "_queued_calls", "_initialization_lock", "_lazy_seed_tracker"):
        assert getattr(torch.cuda, name) is getattr(torch_musa.core._lazy_init, name)
    done = []
    torch.cuda._lazy_call(lambda: done.append(1))
    torch.cuda.init()
    assert done == [1]


def test_a_failing_queued_call_is_named(run_python):
    done = run_python(
        """
        import torchada, torch
        def broken():
            raise KeyError("from the queue")
        torch.cuda._lazy_call(broken)
        try:
            torch.cuda.init()
        except torch.cuda.DeferredCudaCallError as error:
            print("from the queue" in str(error), "originally invoked" in str(error))
        """
    )
    assert done.stdout.split() == ["True", "True"]


def test_a_child_forked_after_initialisation_is_told(run_python):
    done = run_python(
        """
        import os, sys
        import torchada, torch
        graph, x = torch.cuda.CUDAGraph(), torch.ones(2, device="cuda")
        with torch.cuda.graph(graph):
            x.add_(1)
        assert not torch.cuda._is_in_bad_fork()
        sys.stdout.flush()
        if os.fork() == 0:
            print(torch.cuda._is_in_bad_fork(), torch.cuda.is_initialized())
            for call in (torch.cuda.current_device, graph.replay):
                try:
                    call()
                except RuntimeError as error:
                    print("'spawn' start method" in str(error))
            sys.stdout.flush()
            os._exit(0)
        os.wait()
        """
    )
    assert done.stdout.split() == ["True", "False", "True", "True"]


def test_error_classes():
    assert torch.cuda.OutOfMemoryError is torch.OutOfMemoryError
    assert torch.cuda.CudaError is torch_musa.MusaError
    assert issubclass(torch.cuda.CudaError, RuntimeError)
    assert torch.cuda.DeferredCudaCallError is torch_musa.core._lazy_init.DeferredMusaCallError
    assert torch.cuda.cudaStatus.SUCCESS == 0
    if hasattr(torch, "AcceleratorError"):
        assert torch.cuda.AcceleratorError is torch.AcceleratorError


def test_cudart():
    runtime = torch.cuda.cudart()
    assert runtime is torch.cuda._cudart is torch.cuda.profiler.cudart()
    assert runtime.cudaMemGetInfo(0) == torch.cuda.mem_get_info(0)
    torch.cuda.check_error(runtime.cudaError.success)
    with pytest.raises(torch.cuda.CudaError):
        torch.cuda.check_error(2)
    assert "cudaMemGetInfo" in dir(runtime)
    assert not hasattr(runtime, "cudaGraphLaunch")
    with pytest.raises(torchada.NotOnMusa, match="cudaGraphLaunch"):
        runtime.cudaGraphLaunch()
    with pytest.raises(AttributeError, match="nonsense"):
        runtime.nonsense()


def test_pinning_by_cudart():
    buffer = torch.empty(1024, dtype=torch.uint8)
    runtime = torch.cuda.cudart()
    torch.cuda.check_error(runtime.cudaHostRegister(buffer.data_ptr(), buffer.numel(), 0))
    torch.cuda.check_error(runtime.cudaHostUnregister(buffer.data_ptr()))


def test_sync_debug_mode():
    assert torch.cuda.get_sync_debug_mode() == 0
    try:
        with pytest.warns(torchada.TorchadaWarning, match="none will warn or raise"):
            torch.cuda.set_sync_debug_mode("warn")
        assert torch.cuda.get_sync_debug_mode() == 1
        with pytest.raises(RuntimeError, match="expected one of"):
            torch.cuda.set_sync_debug_mode("loud")
        with pytest.raises(RuntimeError, match="expected one of"):
            torch.cuda.set_sync_debug_mode(7)
    finally:
        torch.cuda.set_sync_debug_mode(0)
    assert torch.cuda.get_sync_debug_mode() == 0


def test_generators_by_device():
    assert torch.cuda._get_generator(torch.device("cuda:1")) is torch.cuda.default_generators[1]
    with torch.cuda.device(1):
        assert torch.cuda._get_generator(torch.device("cuda")) is torch.cuda.default_generators[1]
    assert torch.cuda._get_device(1) == torch.cuda._get_device("cuda:1") == torch.device("musa:1")
    before = torch.cuda._get_rng_state_offset("cuda:1")
    try:
        torch.cuda._set_rng_state_offset(before + 8, "cuda:1")
        assert torch.cuda._get_rng_state_offset("cuda:1") == before + 8
    finally:
        torch.cuda._set_rng_state_offset(before, "cuda:1")


def test_handles_and_small_helpers():
    assert isinstance(torch.cuda.current_blas_handle(), int)
    torch.cuda._sleep(10)


def test_exchange_device():
    assert torch.cuda._exchange_device(1) == 0
    assert torch.cuda._maybe_exchange_device(0) == 1
    assert torch.cuda.current_device() == 0


LATE = """
import os
import torch
made_before = torch.device("cuda:1")
plain = torch.device("cuda")
import torchada
os.environ.pop("TORCHADA", None)
torchada.activate()
assert made_before.type == "cuda"
torch.cuda.set_device(made_before)
print(torch.cuda.current_device())
with torch.cuda.device(torch.device("cuda:0")):
    print(torch.cuda.current_device())
torch.cuda.synchronize(made_before)
print(torch.cuda.current_stream(made_before).device, torch.cuda.Stream(device=made_before).device)
print(torch.cuda.get_device_name(made_before) == torch.cuda.get_device_name(1))
print(torch.cuda.memory_allocated(made_before), torch.cuda.get_rng_state(made_before).numel() > 0)
print(torch.cuda.mem_get_info(made_before)[1] > 0, torch.cuda._get_device_index(plain, optional=True))
torchada.deactivate()
import torch_musa
try:
    torch_musa.set_device(made_before)
except ValueError as error:
    print("undone")
"""


def test_devices_made_before_activation(run_python):
    done = run_python(LATE, env={"TORCHADA": "0"})
    assert done.stdout.splitlines() == ["1", "0", "musa:1 musa:1", "True", "0 True", "True 1", "undone"]
    assert "TorchadaWarning" not in done.stderr
