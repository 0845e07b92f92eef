"""What the example programs brought to light, each reduced to a few lines."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn


@pytest.mark.parametrize("move", [lambda m: m.cuda(), lambda m: m.to("cuda"), lambda m: m.to(torch.device("cuda:1"))])
def test_moving_a_module_keeps_its_parameters(move) -> None:
    """Tied weights stay tied, and an optimizer made before the move trains what moved."""
    first, second = nn.Linear(4, 4), nn.Linear(4, 4)
    second.weight = first.weight
    model = nn.Sequential(first, second)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
    weight = first.weight
    move(model)
    assert first.weight is weight and second.weight is weight and weight.is_cuda
    before = weight.detach().clone()
    model(torch.ones(2, 4, device=weight.device)).sum().backward()
    optimizer.step()
    assert not torch.equal(first.weight, before)
    model.cpu()
    assert second.weight is weight and weight.device.type == "cpu" and weight.grad.device.type == "cpu"


def test_data_of_another_device() -> None:
    x = torch.arange(3.0)
    x.data = x.data.cuda()
    assert x.is_cuda and x.tolist() == [0, 1, 2]
    x.data = x.data.cpu()
    assert x.device.type == "cpu" and x.tolist() == [0, 1, 2]


def test_group_norm_takes_channels_last() -> None:
    x, weight = torch.randn(2, 8, 4, 4), torch.rand(8)
    y = F.group_norm(x.cuda().to(memory_format=torch.channels_last), 4, weight.cuda(), weight.cuda())
    torch.testing.assert_close(y.cpu(), F.group_norm(x, 4, weight, weight))


def test_mean_losses_do_not_resize_their_result() -> None:
    x = torch.randn(4, 3, device="cuda", requires_grad=True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        F.mse_loss(x, torch.zeros_like(x)).backward()
    torch.testing.assert_close(x.grad, x.detach() / 6)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_products_are_summed_in_float(dtype: torch.dtype) -> None:
    a, b = torch.randn(5, 300).to(dtype), torch.randn(300, 7).to(dtype)
    assert torch.equal((a.cuda() @ b.cuda()).cpu(), (a.float() @ b.float()).to(dtype))
    x, kernel = torch.randn(2, 3, 8, 8).to(dtype), torch.randn(4, 3, 3, 3).to(dtype)
    y = F.conv2d(x.cuda(), kernel.cuda()).cpu()
    assert torch.equal(y, F.conv2d(x.float(), kernel.float()).to(dtype))


def test_half_products_need_no_more_memory_and_no_mixed_types() -> None:
    a = torch.ones(512, 512, device="cuda", dtype=torch.float16)
    torch.cuda.reset_peak_memory_stats()
    start = torch.cuda.memory_allocated()
    b = a @ a
    assert torch.cuda.max_memory_allocated() - start == b.nbytes
    with pytest.raises(RuntimeError, match="same dtype"):
        a @ a.float()
