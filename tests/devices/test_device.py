"""torch.device itself."""

import copy
import io
import pickle
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import torchada


@pytest.mark.parametrize(
    ("make", "index"),
    [
        (lambda: torch.device("cuda"), None),
        (lambda: torch.device("cuda:0"), 0),
        (lambda: torch.device("cuda:1"), 1),
        (lambda: torch.device("cuda", 1), 1),
        (lambda: torch.device("cuda", None), None),
        (lambda: torch.device("cuda", index=1), 1),
        (lambda: torch.device(type="cuda", index=1), 1),
        (lambda: torch.device(type="cuda"), None),
        (lambda: torch.device(device="cuda:1"), 1),
        (lambda: torch.device(torch.device("cuda:1")), 1),
        (lambda: torch.device(1), 1),
        (lambda: torch.device("".join(["cu", "da:1"])), 1),
        (lambda: torch.device(type("Name", (str,), {})("cuda:1")), 1),
        (lambda: torch.device("cuda:77"), 77),
    ],
)
def test_forms(make: Callable[[], torch.device], index: int | None) -> None:
    device = make()
    assert type(device) is torch.device
    assert (device.type, device.index) == ("musa", index)
    assert device == (torch.device("musa") if index is None else torch.device("musa", index))


@pytest.mark.parametrize(
    ("value", "error", "text"),
    [
        ("cuda:x", RuntimeError, "Invalid device string: 'cuda:x'"),
        ("cuda:-1", RuntimeError, "Invalid device string: 'cuda:-1'"),
        ("cuda:", RuntimeError, "Invalid device string: 'cuda:'"),
        ("cuda:01", RuntimeError, "Invalid device string"),
        ("cuda:0:0", RuntimeError, "Invalid device string: 'cuda:0:0'"),
        ("cudaa", RuntimeError, "at start of device string: cudaa"),
        ("CUDA", RuntimeError, "at start of device string: CUDA"),
        (" cuda", RuntimeError, "Invalid device string: ' cuda'"),
        ("my_cuda", RuntimeError, "at start of device string: my_cuda"),
        ("", RuntimeError, "must not be empty"),
        (None, TypeError, "invalid combination"),
        (object(), TypeError, "invalid combination"),
    ],
)
def test_malformed(value: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=re.escape(text)):
        torch.device(value)
    if value is not None:
        with pytest.raises((error, TypeError)):
            torch.zeros(2, device=value)
        with pytest.raises((error, TypeError)):
            torch.zeros(2).to(value)
        with pytest.raises((error, TypeError)):
            torch.zeros(2).cuda(value)


def test_malformed_two_part_forms() -> None:
    with pytest.raises(RuntimeError, match="must not include an index"):
        torch.device("cuda:0", 0)
    with pytest.raises(RuntimeError, match="must not be negative"):
        torch.device("cuda", -1)
    with pytest.raises(TypeError):
        torch.device("cuda", "0")
    with pytest.raises(TypeError):
        torch.device()


@pytest.mark.parametrize("make", [
    lambda: torch.zeros(2, device="cuda:2"),
    lambda: torch.zeros(2, device=torch.device("cuda", 64)),
    lambda: torch.zeros(2, device=7),
    lambda: torch.zeros(2).to("cuda:9"),
    lambda: torch.zeros(2).cuda(9),
    lambda: torch.zeros(2).cuda("cuda:9"),
    lambda: torch.zeros(2).new_zeros(2, device="cuda:99"),
    lambda: torch.UntypedStorage(4, device="cuda:9"),
    lambda: torch.nn.Linear(2, 2).cuda(9),
    lambda: torch.nn.Linear(2, 2, device="cuda:9"),
])  # fmt: skip
def test_index_out_of_range(make: Callable[[], Any]) -> None:
    with pytest.raises(RuntimeError, match=r"(?i)invalid device ordinal"):
        make()


def test_equality_hash_and_dict_keys() -> None:
    one, other = torch.device("cuda:1"), torch.device("cuda", 1)
    assert one == other and hash(one) == hash(other)
    assert one != torch.device("cuda:0") and one != torch.device("cuda") and one != "cuda:1"
    assert {one: "x"}[torch.device("cuda", 1)] == "x"
    assert {torch.device("cuda:0"), torch.device("cuda", 0)} == {torch.device("cuda:0")}
    x = torch.zeros(1, device="cuda:1")
    assert x.device == one and {x.device: 1}[one] == 1


def test_repr_and_str() -> None:
    assert repr(torch.device("cuda:1")) == "device(type='musa', index=1)"
    assert str(torch.device("cuda")) == "musa"
    assert f"{torch.device('cuda:1')}" == "musa:1"


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_pickle_is_portable(protocol: int) -> None:
    device = torch.device("cuda:1")
    written = pickle.dumps(device, protocol)
    assert b"cuda" in written and b"musa" not in written
    assert pickle.loads(written) == device
    assert pickle.loads(pickle.dumps(torch.device("cuda"), protocol)) == torch.device("cuda")
    assert pickle.loads(pickle.dumps(torch.device("cpu"), protocol)) == torch.device("cpu")


def test_copy() -> None:
    device = torch.device("cuda:1")
    assert copy.copy(device) == copy.deepcopy(device) == device
    assert copy.deepcopy({"d": [device]}) == {"d": [device]}


def test_weights_only_devices() -> None:
    file = io.BytesIO()
    torch.save({"device": torch.device("cuda:1")}, file)
    file.seek(0)
    assert torch.load(file, weights_only=True)["device"] == torch.device("cuda:1")


def test_context_manager() -> None:
    with torch.device("cuda:1"):
        assert torch.zeros(2).device == torch.device("cuda:1")
        assert torch.nn.Linear(2, 2).weight.device == torch.device("cuda:1")
        assert torch.zeros(2, device="cpu").device.type == "cpu"
        with torch.device("cpu"):
            assert torch.tensor([1]).device.type == "cpu"
    assert torch.zeros(2).device.type == "cpu"


def test_default_device() -> None:
    try:
        torch.set_default_device("cuda:1")
        assert torch.zeros(2).device == torch.device("cuda:1") == torch.get_default_device()
        torch.set_default_device(torch.device("cuda"))
        assert torch.arange(3).device.type == "musa"
    finally:
        torch.set_default_device(None)
    assert torch.zeros(2).device.type == "cpu"


def test_type_stays_what_it_is() -> None:
    assert torch.device.__name__ == "device" and torch.device.__module__ == "torch"
    assert isinstance(torch.device("cuda"), torch.device)
    with pytest.raises(TypeError, match="not an acceptable base type"):
        type("Sub", (torch.device,), {})


def test_infer_schema_and_custom_op_annotations() -> None:
    def op(x: torch.Tensor, device: torch.device, other: torch.device | None = None) -> torch.Tensor: ...

    assert torch.library.infer_schema(op, mutates_args=()) == "(Tensor x, Device device, Device? other=None) -> Tensor"


def test_file_names_and_texts_are_not_devices(tmp_path: Any) -> None:
    path = tmp_path / "cuda"
    torch.save(torch.ones(1), path)
    assert torch.load(str(path)).tolist() == [1.0]
    assert torch.load(io.BytesIO(_saved({"cuda": 1, "x": "cuda:1"}))) == {"cuda": 1, "x": "cuda:1"}


def _saved(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_out_of_memory_is_told_in_the_words_programs_look_for() -> None:
    with pytest.raises(torch.cuda.OutOfMemoryError) as raised:
        torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
    (text,) = raised.value.args
    assert text == str(raised.value)
    assert text.startswith("CUDA out of memory. Tried to allocate 32768.00 GiB. ") and "MUSA out of memory." in text
    assert str(torch.OutOfMemoryError("another text")) == "another text"
    assert torch.OutOfMemoryError().args == ()
    assert pickle.loads(pickle.dumps(raised.value)).args == (text,)
    with torchada.disabled(), pytest.raises(torch.OutOfMemoryError, match=r"^MUSA out of memory\."):
        torch.empty(1 << 45, dtype=torch.uint8, device="musa")


def test_bytes_where_torch_takes_a_string() -> None:
    assert torch.device(b"cuda:1") == torch.device("cuda:1")  # type: ignore[call-overload]
    x = torch.zeros(1, device=b"cuda:1")  # type: ignore[call-overload]
    assert x.get_device() == 1
    assert x.to(b"cuda").is_cuda and x.to(b"cpu").device.type == "cpu"  # type: ignore[call-overload]
    with pytest.raises(RuntimeError, match="Invalid device string: 'cuda:x'"):
        x.to(b"cuda:x")  # type: ignore[call-overload]
