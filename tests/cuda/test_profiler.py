"""torch.profiler asked in CUDA's words."""

import warnings

import pytest
import torch
from torch.profiler import ProfilerActivity, profile

CPU, CUDA, DEVICE = ProfilerActivity.CPU, ProfilerActivity.CUDA, ProfilerActivity.PrivateUse1


def kernels(prof):
    return {row.key for row in prof.key_averages() if row.device_type == torch.autograd.DeviceType.PrivateUse1}


@pytest.mark.parametrize("activities", [[CPU, CUDA], (CUDA,), {CUDA}, [CUDA, DEVICE], None], ids=str)
def test_the_cuda_activity_shows_the_device(activities):
    x = torch.ones(20, 20, device="cuda")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)  # "CUDA is not available, disabling CUDA profiling"
        with profile(activities=activities) as prof:
            (x @ x).sin()
    assert {"mm_kernel", "sin_kernel"} <= kernels(prof)
    assert DEVICE in prof.activities and CUDA not in prof.activities
    assert "mm_kernel" in prof.key_averages().table(sort_by="cuda_time_total")


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


def test_autograd_profiler():
    x = torch.ones(20, 20, device="cuda")
    with torch.autograd.profiler.profile(use_device="cuda", use_kineto=True) as prof:
        x @ x
    assert prof.use_device == "musa" and "mm_kernel" in kernels(prof)
    with pytest.warns(FutureWarning, match="use_device = 'cuda'") as caught:
        prof = torch.autograd.profiler.profile(use_cuda=True, use_kineto=True)
    assert caught[0].filename == __file__ and prof.use_device == "musa"
