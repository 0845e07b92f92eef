"""Devices: counting, choosing, describing."""

import os

import torch


def count():
    assert torch.cuda.device_count() >= 2
    assert isinstance(torch.cuda.device_count(), int)


def current_is_the_first():
    torch.cuda.set_device(0)
    assert torch.cuda.current_device() == 0


def set_device_by_index():
    torch.cuda.set_device(1)
    assert torch.cuda.current_device() == 1
    assert torch.zeros(1, device="cuda").get_device() == 1


def set_device_by_string():
    torch.cuda.set_device("cuda:1")
    assert torch.cuda.current_device() == 1


def set_device_by_object():
    torch.cuda.set_device(torch.device("cuda", 1))
    assert torch.cuda.current_device() == 1


def device_context():
    torch.cuda.set_device(0)
    with torch.cuda.device(1):
        assert torch.cuda.current_device() == 1
        x = torch.ones(2, device="cuda")
    assert torch.cuda.current_device() == 0
    assert x.device == torch.device("cuda:1")


def device_context_comes_back_after_an_error():
    try:
        with torch.cuda.device("cuda:1"):
            raise KeyError
    except KeyError:
        pass
    assert torch.cuda.current_device() == 0


def device_context_with_a_negative_index_does_nothing():
    with torch.cuda.device(-1):
        assert torch.cuda.current_device() == 0


def device_of_a_tensor():
    x = torch.zeros(1, device="cuda:1")
    with torch.cuda.device_of(x):
        assert torch.cuda.current_device() == 1
    with torch.cuda.device_of(torch.zeros(1)):
        assert torch.cuda.current_device() == 0


def name_of_a_device():
    assert isinstance(torch.cuda.get_device_name(), str) and torch.cuda.get_device_name()
    assert torch.cuda.get_device_name(0) == torch.cuda.get_device_name("cuda:0")


def capability():
    major, minor = torch.cuda.get_device_capability()
    assert major >= 1 and minor >= 0
    assert torch.cuda.get_device_capability(torch.device("cuda:0")) == (major, minor)


def properties():
    found = torch.cuda.get_device_properties(0)
    assert found.name == torch.cuda.get_device_name(0)
    assert (found.major, found.minor) == torch.cuda.get_device_capability(0)
    assert found.total_memory > 0 and found.multi_processor_count > 0
    assert isinstance(found.is_integrated, (int, bool)) and isinstance(found.is_multi_gpu_board, (int, bool))
    assert found.name in repr(found)


def properties_of_the_current_device():
    with torch.cuda.device(1):
        assert (
            torch.cuda.get_device_properties().total_memory == torch.cuda.get_device_properties("cuda:1").total_memory
        )


def peers():
    assert isinstance(torch.cuda.can_device_access_peer(0, 1), bool)


def architectures():
    assert all("_" in arch for arch in torch.cuda.get_arch_list())
    assert isinstance(torch.cuda.get_gencode_flags(), str)


def number_formats():
    assert isinstance(torch.cuda.is_bf16_supported(), bool)
    assert isinstance(torch.cuda.is_tf32_supported(), bool)


def initialisation():
    torch.cuda.init()
    assert torch.cuda.is_initialized()
    torch.cuda.init()


def synchronize_a_device():
    torch.cuda.synchronize()
    torch.cuda.synchronize(1)
    torch.cuda.synchronize("cuda:1")
    torch.cuda.synchronize(device=torch.device("cuda:0"))


def collect_shared_memory():
    torch.cuda.ipc_collect()


def a_wrong_index():
    for use in (torch.cuda.set_device, torch.cuda.get_device_name, torch.cuda.get_device_properties):
        try:
            use(99)
        except (RuntimeError, AssertionError):
            pass
        else:
            raise AssertionError(use)
    assert torch.cuda.current_device() == 0


def a_device_that_is_no_gpu():
    for use in (torch.cuda.get_device_name, torch.cuda.synchronize, torch.cuda.memory_allocated):
        try:
            use("cpu")
        except ValueError:
            pass
        else:
            raise AssertionError(use)


def device_objects():
    a = torch.device("cuda")
    assert a.index is None and torch.device("cuda:1").index == 1
    assert torch.device("cuda", 1) == torch.device("cuda:1") == torch.device(type="cuda", index=1)
    assert a != torch.device("cuda:0") and hash(torch.device("cuda:0")) == hash(torch.device("cuda", 0))
    assert isinstance(a, torch.device)


def device_as_context():
    with torch.device("cuda:1"):
        x = torch.zeros(2)
        y = torch.empty(2, device="cpu")
    assert x.get_device() == 1 and not y.is_cuda


def default_device():
    torch.set_default_device("cuda")
    try:
        assert torch.ones(1).is_cuda
        assert torch.get_default_device() == torch.ones(1).device
    finally:
        torch.set_default_device(None)
    assert not torch.ones(1).is_cuda


def visible_devices():
    assert "CUDA_VISIBLE_DEVICES" not in os.environ or isinstance(os.environ["CUDA_VISIBLE_DEVICES"], str)


def module_of_the_device_type():
    assert torch.get_device_module("cuda") is torch.cuda
    with torch.cuda.device(1):
        assert torch.get_device_module(torch.device("cuda:0")).current_device() == 1


def busy_wait():
    torch.cuda._sleep(1000)
    torch.cuda.synchronize()


def handles():
    assert isinstance(torch.cuda.current_blas_handle(), int)
