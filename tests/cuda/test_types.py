"""Legacy tensor types and storages of torch.cuda."""

import pytest
import torch
import torch_musa

TYPES = {
    "BFloat16Tensor": torch.bfloat16,
    "BoolTensor": torch.bool,
    "ByteTensor": torch.uint8,
    "CharTensor": torch.int8,
    "DoubleTensor": torch.float64,
    "FloatTensor": torch.float32,
    "HalfTensor": torch.float16,
    "IntTensor": torch.int32,
    "LongTensor": torch.int64,
    "ShortTensor": torch.int16,
}


@pytest.mark.parametrize("name,dtype", TYPES.items())
def test_legacy_tensor_types(name, dtype):
    kind = getattr(torch.cuda, name)
    x = kind(2, 3)
    assert x.shape == (2, 3) and x.dtype is dtype and x.device == torch.device("cuda:0") and x.is_cuda
    assert kind([1, 0]).tolist() == [1, 0]
    assert isinstance(x, kind)
    assert not isinstance(x.cpu(), kind)
    other = torch.cuda.LongTensor if name != "LongTensor" else torch.cuda.FloatTensor
    assert not isinstance(x, other)


def test_type_strings():
    x = torch.ones(2).type("torch.cuda.FloatTensor")
    assert isinstance(x, torch.cuda.FloatTensor)
    assert torch.ones(2).type(torch.cuda.LongTensor).dtype is torch.int64


def test_classes_stay_torchs_own(run_python):
    for name in TYPES:
        assert getattr(torch.cuda, name) in torch._tensor_classes
    for name in ("FloatTensor", "LongTensor"):
        assert getattr(torch.cuda.sparse, name) in torch._tensor_classes
    done = run_python(
        """
        import torch
        before = torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor
        import os
        os.environ.pop("TORCHADA")
        import torchada
        torchada.activate()
        print((torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor) == before, torch.cuda.FloatTensor(2).device)
        torchada.deactivate()
        print((torch.cuda.FloatTensor, torch.cuda.sparse.FloatTensor) == before)
        try:
            torch.cuda.FloatTensor(2)
        except (TypeError, RuntimeError) as error:  # RuntimeError of a torch built for CUDA
            print("not available" in str(error) or "NVIDIA driver" in str(error))
        """,
        env={"TORCHADA": "0"},
    )
    assert done.stdout.splitlines() == ["True musa:0", "True", "True"]


@pytest.mark.filterwarnings("ignore:TypedStorage is deprecated")
@pytest.mark.parametrize(
    "name,dtype",
    [
        ("FloatStorage", torch.float32),
        ("LongStorage", torch.int64),
        ("HalfStorage", torch.float16),
        ("ComplexFloatStorage", torch.complex64),
        ("ComplexDoubleStorage", torch.complex128),
    ],
)
def test_legacy_storages(name, dtype):
    kind = getattr(torch.cuda, name)
    storage = kind(4)
    assert storage.dtype is dtype and len(storage) == 4
    assert storage.device.type == torch.device("cuda").type
    with pytest.raises(RuntimeError, match="Not available"):
        kind.from_buffer(b"")


def test_private_bases():
    assert torch.cuda._CudaBase is torch_musa.core._lazy_init._MusaBase


@pytest.mark.parametrize("sizes", [(), (2,), (2, 3), (torch.Size([2, 3]),)], ids=str)
def test_legacy_sparse_tensors_by_sizes(sizes):
    x, same = torch.cuda.sparse.DoubleTensor(*sizes), torch.sparse.DoubleTensor(*sizes)
    assert (x.shape, x.dtype, x.layout, x._nnz()) == (same.shape, same.dtype, same.layout, 0)
    assert x.is_cuda and x.type() == "torch.cuda.sparse.DoubleTensor"
