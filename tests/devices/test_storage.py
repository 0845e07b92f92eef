"""Storages."""

import io
import warnings
from typing import Any

import pytest
import torch

CUDA1 = torch.device("cuda:1")


@pytest.fixture(autouse=True)
def _quiet() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


@pytest.mark.parametrize("value", ["cuda:1", CUDA1, 1])
def test_untyped(value: Any) -> None:
    made = torch.UntypedStorage(8, device=value)
    assert made.device == CUDA1 and made.is_cuda and made.nbytes() == 8
    assert torch.UntypedStorage(8).to(device=torch.device(value)).device == CUDA1


def test_moves() -> None:
    storage = torch.arange(4, dtype=torch.uint8).untyped_storage()
    assert not storage.is_cuda
    for moved in (
        storage.cuda(),
        storage.to(device="cuda"),
        storage.cuda(0),
        storage.to(device=torch.device("cuda:0")),
    ):
        assert moved.is_cuda and moved.device == torch.device("cuda:0")
        assert moved.cpu().tolist() == [0, 1, 2, 3]
    assert storage.cuda(1).device == CUDA1 and storage.cuda(1).get_device() == 1
    assert storage.cuda(1).cuda(1).device == CUDA1
    assert storage.pin_memory().is_pinned() and storage.pin_memory("cuda").is_pinned("cuda")
    assert torch.UntypedStorage._new_shared(4, device="cuda:1").device == CUDA1


def test_typed() -> None:
    made = torch.TypedStorage(4, dtype=torch.float32, device="cuda:1")
    assert made.device == CUDA1 and made.is_cuda
    assert torch.TypedStorage([1.0, 2.0], dtype=torch.float32, device="cuda").tolist() == [1.0, 2.0]
    typed = torch.ones(2).storage()
    assert not typed.is_cuda and typed.cuda().is_cuda and typed.cuda(1).device == CUDA1
    assert torch.ones(2).cuda().storage().is_cuda
    assert torch.ones(2).cuda().untyped_storage().is_cuda
    assert torch.ones(2).cuda().storage().type() == "torch.cuda.FloatStorage"
    assert torch.ones(2).storage().type() == "torch.FloatStorage"


def test_saved_by_itself() -> None:
    file = io.BytesIO()
    torch.save((torch.ones(2, device="cuda:1").untyped_storage(), torch.ones(2, device="cuda:1").storage()), file)
    file.seek(0)
    untyped, typed = torch.load(file, weights_only=False)
    assert untyped.device == typed.device == CUDA1 and typed.is_cuda and typed.tolist() == [1.0, 1.0]


def test_set_and_views() -> None:
    x = torch.ones(4).cuda()
    y = torch.empty(0, device="cuda").set_(x.untyped_storage(), 0, (2, 2), (2, 1))
    y[0, 0] = 7
    assert x[0] == 7
