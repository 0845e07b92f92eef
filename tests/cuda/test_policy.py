"""What programs tell the platforms apart by, and the switch that turns it round."""

import pytest
import torch

from torchada.gates import Facts, Gate

no_cuda_build = pytest.mark.skipif(torch.version.cuda is not None, reason="the vendor's torch is not built for CUDA")


@no_cuda_build
def test_is_available_stays_native():
    assert torch.cuda.is_available() is False
    assert torch.cuda._is_compiled() is False
    assert torch.backends.cuda.is_built() is False
    assert not hasattr(torch._C, "_cuda_getDeviceCount")
    assert torch.cuda.device_count() == 2  # the devices are usable all the same


@no_cuda_build
def test_version_is_untouched():
    assert torch.version.cuda is None


FORCED = """
import torchada, torch, json
import torch._inductor.utils
# Dynamo and inductor import these where they see a CUDA build.
from torch._C import _cuda_CUDAAllocator_AllocatorState, _cuda_getCurrentRawStream, _set_cached_tensors_enabled
assert torchada.status()["rules"].get("failed", 0) == 0, torchada.status()
print(json.dumps({
    "is_available": torch.cuda.is_available(),
    "is_compiled": torch.cuda._is_compiled(),
    "is_built": torch.backends.cuda.is_built(),
    "binding": torch._C._cuda_getDeviceCount(),
    "nvml": torch.cuda._device_count_nvml(),
    "version": torch.version.cuda,
    "platform": torchada.detect_platform().value,
    "rng": tuple(torch.cuda.get_rng_state().shape) == tuple(torch.cuda.get_rng_state("cuda:1").shape),
    "initialized": torch.cuda.is_initialized(),
    "amp": torch.cuda.amp.common.amp_definitely_not_available(),
    "inductor": torch._inductor.utils.get_gpu_type(),
    "on": str((torch.ones(2, device="cuda") + 1).device),
}))
torchada.deactivate()
print(torch.cuda.is_available(), torch.backends.cuda.is_built(), hasattr(torch._C, "_cuda_getDeviceCount"))
"""


@no_cuda_build
def test_forced_availability_is_coherent(run_python):
    done = run_python(FORCED, env={"TORCHADA_FORCE_CUDA_AVAILABLE": "1"})
    group, undone = done.stdout.splitlines()
    import json

    assert json.loads(group) == {
        "is_available": True,
        "is_compiled": True,
        "is_built": True,
        "binding": 2,
        "nvml": 2,
        "version": None,
        "platform": "musa",
        "rng": True,
        "initialized": True,
        "amp": False,
        "inductor": "musa",
        "on": "musa:0",
    }
    assert undone == "False False False"


@pytest.mark.parametrize(
    "word,on", [("1", True), ("true", True), ("YES", True), ("on", True), ("0", False), ("", False)]
)
def test_words_that_force(word, on):
    gate = Gate("env:TORCHADA_FORCE_CUDA_AVAILABLE")
    assert (gate.failing(Facts("musa", env={"TORCHADA_FORCE_CUDA_AVAILABLE": word})) is None) is on


def test_visible_devices(run_python):
    code = """
    import torchada, torch
    print(torch.cuda._parse_visible_devices(), torch.cuda._get_nvml_device_index(0), torch.cuda._nvml_based_avail())
    """
    done = run_python(code, env={"MUSA_VISIBLE_DEVICES": "1", "CUDA_VISIBLE_DEVICES": "0"})
    assert done.stdout.split() == ["[1]", "1", "False"]


@pytest.mark.parametrize(
    "first_use",
    ["torch.cuda.device_count()", "torch.ones(1, device='cuda')", "torch.accelerator.device_count()"],
)
def test_visible_devices_chosen_late(run_python, first_use):
    """CUDA reads the variable at the first use of a device; child processes get devices of their own by it."""
    code = f"""
    import os, subprocess, sys, torch, torchada
    os.environ["CUDA_VISIBLE_DEVICES"] = "1"
    {first_use}
    print(torch.cuda.device_count(), os.environ["MUSA_VISIBLE_DEVICES"])
    if "cuda.device_count" in {first_use!r}:
        child = "import os, torchada, torch; print(torch.cuda.device_count(), os.environ['MUSA_VISIBLE_DEVICES'])"
        subprocess.run([sys.executable, "-c", child], env={{**os.environ, "CUDA_VISIBLE_DEVICES": "1,0"}}, check=True)
    """
    env = {"MUSA_VISIBLE_DEVICES": None, "CUDA_VISIBLE_DEVICES": "0,1"}
    lines = run_python(code, env=env).stdout.split()
    assert sorted(lines) == sorted(["1", "1", *(["2", "1,0"] if "cuda.device" in first_use else [])])
