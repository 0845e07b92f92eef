"""Copies between several devices in one call, and DataParallel on top of them."""

import pytest
import torch
import torch_musa
from torch.nn.parallel import comm

import torchada

CORE = torch_musa._MUSAC


def devices_of(tensors):
    return [t.device.index for t in tensors]


def test_broadcast():
    x = torch.arange(6.0, device="musa:0")
    a, b = comm.broadcast(x, [0, 1])
    assert a is x or a.data_ptr() == x.data_ptr()
    assert devices_of((a, b)) == [0, 1] and torch.equal(a.cpu(), b.cpu())
    assert comm.broadcast(torch.ones(2), ["musa:1"])[0].device == torch.device("musa:1")


def test_broadcast_coalesced():
    tensors = [torch.ones(3, device="musa:0"), torch.zeros(2, 2, dtype=torch.int64, device="musa:0")]
    first, second = comm.broadcast_coalesced(tensors, [0, 1], 10)
    assert [t.data_ptr() for t in first] == [t.data_ptr() for t in tensors]
    assert devices_of(second) == [1, 1] and second[1].dtype == torch.int64
    with pytest.raises(RuntimeError, match=r"All tensors must be on devices\[0\]: 1"):
        comm.broadcast_coalesced(tensors, [1, 0])


def test_scatter_and_gather():
    x = torch.arange(10.0).reshape(5, 2)
    parts = comm.scatter(x, [0, 1])
    assert [tuple(p.shape) for p in parts] == [(3, 2), (2, 2)] and devices_of(parts) == [0, 1]
    assert torch.equal(comm.gather(parts, 0, "cpu"), x)
    assert comm.gather(parts, destination="musa:1").device == torch.device("musa:1")
    with torch_musa.device(1):
        assert comm.gather(parts).device.index == 1
    streams = [torch_musa.Stream(0), torch_musa.Stream(1)]
    parts = comm.scatter(x, [0, 1], [1, 4], 0, streams)
    torch_musa.synchronize(0), torch_musa.synchronize(1)
    assert [len(p) for p in parts] == [1, 4] and torch.equal(comm.gather(parts, 0, "cpu"), x)
    with pytest.warns(UserWarning, match="scalars"):
        assert comm.gather([torch.tensor(1.0, device="musa:0"), torch.tensor(2.0, device="musa:1")]).tolist() == [1, 2]


def test_reduce_add():
    inputs = [torch.full((3,), float(i + 1), device=f"musa:{i}") for i in range(2)]
    total = comm.reduce_add(inputs, 1)
    assert total.tolist() == [3, 3, 3] and total.device.index == 1
    (total,) = comm.reduce_add_coalesced([[inputs[0]], [inputs[1]]], 0)
    assert total.tolist() == [3, 3, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda x: comm.scatter(x, [0, 1], [1]), r"len\(devices\) = 2 and len\(chunk_sizes\) = 1"),
        (lambda x: comm.scatter(x, [0, 1], [1, 1]), "sum exactly"),
        (lambda x: comm.scatter(x, []), "at least one device"),
        (lambda x: comm.scatter(x, [0, 1], None, 5), "Dimension out of range"),
        (lambda x: comm.scatter(x, [0, 1], None, 0, [torch_musa.Stream(1), None]), "the stream at index 0"),
        (lambda x: comm.scatter(x, [0, 1], None, 0, [None]), "a stream for each"),
        (lambda x: comm.scatter(x, [9]), "invalid device ordinal"),
        (lambda x: comm.gather([]), "at least one tensor"),
        (lambda x: comm.gather([x]), "to be MUSA tensors, but tensor at index 0 has device cpu"),
        (lambda x: comm.gather([x.musa(), x[0].musa()]), "same number of dimensions"),
    ],
)
def test_wrong_arguments(call, message):
    with pytest.raises((RuntimeError, IndexError), match=message):
        call(torch.ones(5, 2))


@pytest.mark.parametrize(
    "call",
    [
        lambda x: comm.broadcast(x, out=[x]),
        lambda x: comm.scatter(x, out=[x]),
        lambda x: comm.gather([x], out=x),
    ],
)
def test_the_out_forms_are_missing_as_in_torch_musa(call):
    with torchada.disabled(), pytest.raises(AttributeError, match="_out"):
        call(torch.ones(2, device="musa"))


def test_data_parallel_trains_as_one_device_does():
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2)).to("musa:0")
    x = torch.randn(6, 4, device="musa:0")
    expected = model(x)
    expected.square().sum().backward()
    grads = [p.grad.clone() for p in model.parameters()]
    model.zero_grad()
    parallel = torch.nn.DataParallel(model, device_ids=[0, 1])
    seen = []
    handle = model[0].register_forward_pre_hook(lambda module, args: seen.append(args[0].device.index))
    out = parallel(x)
    handle.remove()
    assert out.device.index == 0 and torch.allclose(out, expected)
    out.square().sum().backward()
    for p, grad in zip(model.parameters(), grads, strict=True):
        assert torch.allclose(p.grad, grad, atol=1e-6)
    assert sorted(seen) == [0, 1]
