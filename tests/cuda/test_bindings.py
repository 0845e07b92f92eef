"""torch._C's bindings for CUDA, called by name."""

import pytest
import torch
import torch_musa

import torchada
from torchada.engine import ENGINE
from torchada.rules import Forward

ROWS = [rule for rule in ENGINE.table.rules if rule.module == "torch._C" and isinstance(rule.do, Forward)]
BOUND = [rule for rule in ROWS if ENGINE.is_open(rule) and hasattr(torch_musa._MUSAC, rule.do.path.rpartition(".")[2])]


def test_there_are_bindings():
    assert len(BOUND) > 50


def test_a_binding_is_the_backends():
    peers = {rule.name: getattr(torch_musa._MUSAC, rule.do.path.rpartition(".")[2]) for rule in BOUND}
    assert {name: getattr(torch._C, name) for name in peers} == peers
    with torchada.disabled():
        own = {name for name, peer in peers.items() if getattr(torch._C, name, None) == peer}
    assert not own
    assert {name: getattr(torch._C, name) for name in peers} == peers


def test_what_projects_call():
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        assert torch._C._cuda_getCurrentRawStream(0) == stream.cuda_stream
    assert torch._C._cuda_getCurrentRawStream(0) == torch.cuda.current_stream().cuda_stream
    assert torch._C._cuda_getDevice() == torch.cuda.current_device()
    torch._C._cuda_emptyCache()
    torch._C._cuda_synchronize()
    assert torch._C._cuda_canDeviceAccessPeer(0, 1) is torch.cuda.can_device_access_peer(0, 1)


@pytest.mark.skipif(not hasattr(torch._C, "_accelerator_emptyHostCache"), reason="torch is older than the name")
def test_pinned_memory_is_given_back():
    torch.empty(1000, pin_memory=True)
    assert torch._C._host_emptyCache is torch._C._accelerator_emptyHostCache
    torch._C._host_emptyCache()


@pytest.mark.skipif(torch.version.cuda is not None, reason="the vendor's torch is not built for CUDA, this one is")
def test_the_sign_of_a_cuda_build_stays_absent():
    """torch and others ask for these two to tell a CUDA build."""
    assert not hasattr(torch._C, "_cuda_getDeviceCount")
    assert not hasattr(torch._C, "_cuda_init")
