"""Custom operators registered for device type "cuda"."""

import pytest
import torch

x = torch.full((2,), 2.0)


def test_kernels_by_device_type() -> None:
    @torch.library.custom_op("torchada_test::where", mutates_args=(), device_types="cpu")
    def where(x: torch.Tensor) -> torch.Tensor:
        return x + 1

    @where.register_kernel("cuda")
    def _(x: torch.Tensor) -> torch.Tensor:
        return x + 10

    assert where(x).tolist() == [3.0, 3.0] and where(x.cuda()).tolist() == [12.0, 12.0]
    with where.set_kernel_enabled("cuda", enabled=True):
        assert where(x.cuda()).tolist() == [12.0, 12.0]


def test_custom_op_for_cuda_only_and_register_kernel() -> None:
    @torch.library.custom_op("torchada_test::only", mutates_args=(), device_types="cuda")
    def only(x: torch.Tensor) -> torch.Tensor:
        return x * 3

    assert only(x.cuda()).tolist() == [6.0, 6.0]

    @torch.library.register_kernel("torchada_test::only", "cpu")
    def _(x: torch.Tensor) -> torch.Tensor:
        return x * 4

    assert only(x).tolist() == [8.0, 8.0]


def test_autocast_of_a_custom_op() -> None:
    @torch.library.custom_op("torchada_test::cast", mutates_args=())
    def cast(x: torch.Tensor) -> torch.Tensor:
        return x.clone()

    torch.library.register_autocast("torchada_test::cast", "cuda", torch.float16)
    assert cast(x.cuda()).dtype == torch.float32
    with torch.autocast("cuda"):
        assert cast(x.cuda()).dtype == torch.float16


def test_device_annotation() -> None:
    @torch.library.custom_op("torchada_test::make", mutates_args=())
    def make(n: int, device: torch.device) -> torch.Tensor:
        return torch.zeros(n, device=device)

    assert make(2, torch.device("cuda:1")).device == torch.device("cuda:1")


def test_dispatch_key() -> None:
    assert torch._C._dispatch_key_for_device("cuda") == "PrivateUse1"


@pytest.mark.parametrize("key", ["CUDA", "cuda"])
def test_library_kernels_by_dispatch_key(key: str) -> None:
    library = torch.library.Library("torchada_test_keys", "DEF")
    try:
        library.define("f(Tensor x) -> Tensor")
        library.impl("f", lambda x: x + 1, "CPU")
        torch.library.impl("torchada_test_keys::f", key, lambda x: x + 10, lib=library)
        assert torch.ops.torchada_test_keys.f(x.cuda()).tolist() == [12.0, 12.0]
        assert torch.ops.torchada_test_keys.f(x).tolist() == [3.0, 3.0]
    finally:
        library._destroy()


def test_libraries_made_for_a_dispatch_key() -> None:
    definition = torch.library.Library("torchada_test_made", "DEF")
    forward = torch.library.Library("torchada_test_made", "IMPL", "CUDA")
    backward = torch.library.Library("torchada_test_made", "IMPL", "AutogradCUDA")
    try:
        definition.define("f(Tensor x) -> Tensor")
        forward.impl("f", lambda x: x + 10)
        assert torch.ops.torchada_test_made.f(x.cuda()).tolist() == [12.0, 12.0]
        backward.impl("f", lambda x: x + 20)
        assert torch.ops.torchada_test_made.f(x.cuda()).tolist() == [22.0, 22.0]
        assert forward.dispatch_key == "CUDA"
    finally:
        for library in (backward, forward, definition):
            library._destroy()
