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


def test_types_are_torchs_own_again_after_undo(run_python):
    done = run_python(
        """
        import torchada, torch
        assert torch.cuda.FloatTensor(2).is_cuda
        torchada.deactivate()
        print(type(torch.cuda.FloatTensor).__name__)
        try:
            torch.cuda.FloatTensor(2)
        except TypeError as error:
            print("not available" in str(error))
        torchada.activate()
        print(torch.cuda.FloatTensor(2).device)
        """
    )
    assert done.stdout.splitlines() == ["tensortype", "True", "musa:0"]


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


def test_sparse_types_raise_as_torch_does():
    with pytest.raises(TypeError, match="not available"):
        torch.cuda.sparse.FloatTensor(2)


def test_private_bases():
    assert torch.cuda._CudaBase is torch_musa.core._lazy_init._MusaBase
