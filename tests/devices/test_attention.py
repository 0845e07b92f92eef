"""FlexAttention on the device, and which device a process of inductor's autotuning sees."""

import inspect
import os

import pytest
import torch
import torch.nn.attention.flex_attention
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

import torchada


def _inputs(device):
    generator = torch.Generator().manual_seed(0)
    made = (torch.randn(1, 2, 16, 8, generator=generator) for _ in range(3))
    return [tensor.to(device) for tensor in made]


@pytest.mark.filterwarnings("ignore:flex_attention called without torch.compile")
def test_flex_attention():
    def relative(score, batch, head, query, key):
        return score + (query - key)

    def causal(batch, head, query, key):
        return query >= key

    inputs = _inputs("cuda")
    for tensor in inputs:
        tensor.requires_grad_()
    mask = create_block_mask(causal, 1, 1, 16, 16, device="cuda")
    out = flex_attention(*inputs, score_mod=relative, block_mask=mask)
    out.square().sum().backward()
    assert out.is_cuda and all(tensor.grad.is_cuda and tensor.grad.abs().sum() > 0 for tensor in inputs)
    host = flex_attention(
        *_inputs("cpu"), score_mod=relative, block_mask=create_block_mask(causal, 1, 1, 16, 16, device="cpu")
    )
    torch.testing.assert_close(out.detach().cpu(), host)
    with torchada.disabled():
        with pytest.raises(ValueError, match="only supported on CUDA"):
            flex_attention(*inputs)


def test_other_devices_are_still_refused():
    q = torch.zeros(1, 1, 16, 8, device="meta")
    with pytest.raises(ValueError, match="only supported on CUDA"):
        flex_attention(q, q, q)
    if "backward on CPU" not in inspect.getsource(torch.nn.attention.flex_attention):  # an older torch
        return
    q = torch.zeros(1, 1, 16, 8, requires_grad=True)
    with pytest.raises(NotImplementedError, match="backward on CPU"):
        flex_attention(q, q, q)


def test_autotuning_processes_see_their_device(monkeypatch):
    from torch._inductor import autotune_process

    if hasattr(autotune_process, "set_cuda_visible_device"):  # an older torch sets it in its own environment
        with autotune_process.set_cuda_visible_device(1):
            assert os.environ["MUSA_VISIBLE_DEVICES"] == "1"
        return
    seen = {}

    class Stop(Exception):
        pass

    def popen(command, env, **options):
        seen.update(env)
        raise Stop

    monkeypatch.setattr(autotune_process.subprocess, "Popen", popen)
    process = object.__new__(autotune_process.TuningProcess)
    process.device = 1
    with pytest.raises(Stop):
        process.start()
    assert seen["MUSA_VISIBLE_DEVICES"] == "1"
