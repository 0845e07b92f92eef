"""Quantized tensors on the device."""

import copy
import io

import pytest
import torch

VALUES = torch.linspace(-1, 1, 12).reshape(3, 4)


def per_tensor(device):
    return torch.quantize_per_tensor(VALUES.to(device), 0.1, 10, torch.quint8)


def per_channel(device):
    scales, zero_points = torch.tensor([0.1, 0.2, 0.05]).to(device), torch.tensor([0, 1, 2]).to(device)
    return torch.quantize_per_channel(VALUES.to(device), scales, zero_points, 0, torch.qint8)


FUNCTIONS = {
    "dequantize": lambda q: q.dequantize(),
    "int_repr": lambda q: q.int_repr(),
    "clone": lambda q: q.clone().dequantize(),
    "slice": lambda q: q[1:].dequantize() if q.qscheme() == torch.per_tensor_affine else q.dequantize(),
    "transpose": lambda q: q.t().dequantize() if q.qscheme() == torch.per_tensor_affine else q.dequantize(),
    "to the CPU": lambda q: q.cpu().dequantize(),
    "deepcopy": lambda q: copy.deepcopy(q).dequantize(),
    "copy_": lambda q: q.clone().copy_(VALUES.to(q.device)).dequantize(),
}


@pytest.mark.parametrize("make", [per_tensor, per_channel])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_quantized_tensor(make, name):
    expected, actual = (FUNCTIONS[name](make(device)) for device in ("cpu", "musa"))
    assert actual.device.type == ("cpu" if name == "to the CPU" else "musa")
    assert torch.equal(actual.cpu(), expected)


@pytest.mark.parametrize("make", [per_tensor, per_channel])
def test_scheme(make):
    q = make("musa")
    assert q.is_quantized and q.device == torch.device("musa", 0) and q.qscheme() == make("cpu").qscheme()
    if make is per_tensor:
        assert (q.q_scale(), q.q_zero_point()) == (0.1, 10)
        assert q.view(4, 3).data_ptr() == q.data_ptr()
    else:
        assert torch.equal(q.q_per_channel_scales().cpu(), make("cpu").q_per_channel_scales())
        assert q.q_per_channel_axis() == 0


def test_save_and_load():
    file = io.BytesIO()
    torch.save(per_tensor("musa"), file)
    file.seek(0)
    loaded = torch.load(file)
    assert loaded.device.type == "musa" and torch.equal(loaded.int_repr().cpu(), per_tensor("cpu").int_repr())


def test_quantized_operators():
    results = []
    for device in ("cpu", "musa"):
        q = per_tensor(device)
        torch.manual_seed(0)
        weight = torch.quantize_per_tensor(torch.randn(2, 4).to(device), 0.1, 0, torch.qint8)
        packed = torch.ops.quantized.linear_prepack(weight, None)
        linear = torch.ops.quantized.linear(q, packed, 0.1, 10)
        results.append([t.dequantize().cpu() for t in (torch.relu(q), torch.ops.quantized.add(q, q, 0.2, 10), linear)])
    assert all(torch.equal(a, b) for a, b in zip(*results, strict=True))


def test_quantized_and_float_do_not_mix_silently():
    with pytest.raises((RuntimeError, NotImplementedError)):
        per_tensor("musa") + 1.5 * VALUES.to("musa")
    with pytest.raises(RuntimeError, match="same device"):
        torch.ops.quantized.add(per_tensor("musa"), per_tensor("cpu"), 0.1, 10)


def test_fake_quantization_trains():
    x = VALUES.to("musa").requires_grad_()
    torch.fake_quantize_per_tensor_affine(x, 0.1, 10, 0, 15).sum().backward()
    y = VALUES.clone().requires_grad_()
    torch.fake_quantize_per_tensor_affine(y, 0.1, 10, 0, 15).sum().backward()
    assert torch.equal(x.grad.cpu(), y.grad)
