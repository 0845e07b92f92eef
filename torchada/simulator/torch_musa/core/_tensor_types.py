"""Legacy tensor types (torch.musa.FloatTensor ...). The vendor binds them natively."""

import torch

_NAMES = {
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


class _TensorType(type):
    """Metaclass: a type is the tensors of one dtype on MUSA devices.

    The type's native name is the whole "torch.musa.FloatTensor": `Tensor.type()` reads that one.
    """

    dtype: torch.dtype
    layout = torch.strided
    is_cuda = False
    is_sparse = False

    def __instancecheck__(cls, instance):
        return (
            isinstance(instance, torch.Tensor)
            and instance.dtype is cls.dtype
            and instance.device.type == "musa"
            and instance.layout is torch.strided
        )

    @property
    def __name__(cls):  # type: ignore[override]
        return type.__dict__["__name__"].__get__(cls).rpartition(".")[2]

    def __repr__(cls):
        return f"<class 'torch.musa.{cls.__name__}'>"


def _new(cls, *args, device=None):
    device = torch.device("musa" if device is None else device)
    if device.type != "musa":
        raise RuntimeError(f"legacy constructor expects device type: musa but device type: {device.type} was passed")
    if len(args) == 1 and isinstance(args[0], torch.Tensor):
        if not isinstance(args[0], cls):
            raise TypeError(f"expected {cls.__module__}.{cls.__name__} (got {args[0].type()})")
        return args[0].alias() if hasattr(args[0], "alias") else args[0].view_as(args[0])
    if len(args) == 1 and torch.is_storage(args[0]):
        return torch.empty(0, dtype=cls.dtype, device=device).set_(args[0])
    # The CPU type knows the forms: sizes, nested sequences, nothing.
    return getattr(torch, cls.__name__)(*args).to(device)


def make_tensor_types(module):
    """Put the types on `module`; returns them."""
    made = []
    for name, dtype in _NAMES.items():
        body = {"__new__": _new, "dtype": dtype, "__module__": "torch.musa", "__qualname__": name}
        kind = _TensorType(f"torch.musa.{name}", (), body)
        setattr(module, name, kind)
        made.append(kind)
    return made
