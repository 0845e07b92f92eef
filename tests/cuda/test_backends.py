"""torch.backends.cuda and torch.backends.cudnn."""

import pytest
import torch
import torch_musa
from torch.nn.attention import SDPBackend, sdpa_kernel


@pytest.fixture(autouse=True)
def _as_before(monkeypatch):
    # torch's own test helpers, which other tests of this process import, forbid to set flags.
    monkeypatch.setitem(torch.backends.flags_frozen.__globals__, "__allow_nonbracketed_mutation_flag", True)
    before = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(before)
    torch_musa._MUSAC._set_allow_tf32(False)


def test_tf32():
    """Every way to allow TF32 in matrix products reaches muDNN's switch, and back."""
    matmul, mudnn = torch.backends.cuda.matmul, torch.backends.mudnn
    assert matmul.allow_tf32 is False and mudnn.allow_tf32 is False
    matmul.allow_tf32 = True
    assert matmul.allow_tf32 is True and mudnn.allow_tf32 is True
    torch.set_float32_matmul_precision("highest")
    assert matmul.allow_tf32 is False and mudnn.allow_tf32 is False
    torch.set_float32_matmul_precision("high")
    assert matmul.allow_tf32 is True and mudnn.allow_tf32 is True
    matmul.allow_tf32 = False
    assert mudnn.allow_tf32 is False
    if hasattr(torch._C, "_set_fp32_precision_setter"):
        matmul.fp32_precision = "tf32"
        assert mudnn.allow_tf32 is True
        matmul.fp32_precision = "ieee"
        assert mudnn.allow_tf32 is False
    with pytest.warns(UserWarning, match="sloppy"):  # torch's own complaint; nothing changes
        torch.set_float32_matmul_precision("sloppy")
    assert mudnn.allow_tf32 is False


def test_convolution_flags_do_not_touch_the_switch():
    """On CUDA convolutions may use TF32 by default and matrix products may not: the stricter one counts."""
    with torch.backends.cudnn.flags(enabled=True, benchmark=True, deterministic=True, allow_tf32=True):
        assert torch.backends.cudnn.benchmark and torch.backends.cudnn.deterministic
    assert torch.backends.mudnn.allow_tf32 is False
    torch.backends.cudnn.allow_tf32 = True
    assert torch.backends.mudnn.allow_tf32 is False


def test_flags_are_kept():
    matmul = torch.backends.cuda.matmul
    for flag in ("allow_fp16_reduced_precision_reduction", "allow_bf16_reduced_precision_reduction"):
        before = getattr(matmul, flag)
        setattr(matmul, flag, not before)
        assert getattr(matmul, flag) is not before
        setattr(matmul, flag, before)
    cudnn = torch.backends.cudnn
    for flag in ("enabled", "benchmark", "deterministic"):
        before = getattr(cudnn, flag)
        setattr(cudnn, flag, not before)
        assert getattr(cudnn, flag) is not before
        setattr(cudnn, flag, before)


def test_plan_cache():
    cache = torch.backends.cuda.cufft_plan_cache
    assert cache.size == 0 and cache[0].size == 0
    cache.max_size = 10
    assert cache.max_size == 10 == cache[torch.device("cuda:0")].max_size
    assert cache[1].max_size == 4096
    cache.clear()
    cache[1].clear()
    cache.max_size = 4096
    with pytest.raises(RuntimeError, match="non-negative"):
        cache.max_size = -1
    with pytest.raises(RuntimeError, match="read-only"):
        cache.size = 3
    with pytest.raises(RuntimeError, match="expected 0 <= device index < 2"):
        cache[7]


@pytest.mark.parametrize(
    "function,name", [("preferred_linalg_library", "magma"), ("preferred_blas_library", "cublaslt")]
)
def test_preferred_libraries(function, name):
    prefer = getattr(torch.backends.cuda, function)
    before = prefer()
    chosen = prefer(name)
    assert prefer() == chosen != before
    assert type(chosen) is type(before)
    assert prefer("default") == prefer()
    with pytest.raises((RuntimeError, TypeError)):
        prefer("no such library")
    assert torch.linalg.inv(torch.eye(2, device="cuda")).is_cuda


def test_sdp_switches():
    switches = {
        "flash": (torch.backends.cuda.enable_flash_sdp, torch.backends.cuda.flash_sdp_enabled),
        "efficient": (torch.backends.cuda.enable_mem_efficient_sdp, torch.backends.cuda.mem_efficient_sdp_enabled),
        "math": (torch.backends.cuda.enable_math_sdp, torch.backends.cuda.math_sdp_enabled),
        "cudnn": (torch.backends.cuda.enable_cudnn_sdp, torch.backends.cuda.cudnn_sdp_enabled),
    }
    for enable, enabled in switches.values():
        enable(False)
        assert enabled() is False
        enable(True)
        assert enabled() is True
    q = torch.randn(1, 2, 8, 4, device="cuda")
    with sdpa_kernel(SDPBackend.MATH):
        assert not torch.backends.cuda.flash_sdp_enabled()
        inside = torch.nn.functional.scaled_dot_product_attention(q, q, q)
    torch.testing.assert_close(inside, torch.nn.functional.scaled_dot_product_attention(q, q, q))
    with sdpa_kernel([SDPBackend.FLASH_ATTENTION, SDPBackend.MATH]):
        assert not torch.backends.cuda.mem_efficient_sdp_enabled()


@pytest.mark.skipif(torch.version.cuda is not None, reason="the vendor's torch is not built for CUDA, this one is")
def test_what_tells_an_nvidia_build():
    assert torch.backends.cuda.is_built() is False
    assert torch.backends.cudnn.is_available() is False and torch.backends.cudnn.version() is None
    assert torch.backends.cudnn.is_acceptable(torch.zeros(1, device="cuda")) is False
    assert torch.backends.cusparselt.is_available() is False
