"""Exported programs name CUDA devices, are written, read and moved; what the backend cannot compile says so."""

from __future__ import annotations

import io
import zipfile
from typing import Any

import pytest
import torch
from torch.export import Dim, ExportedProgram, export


class Model(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = torch.nn.Linear(4, 2)
        self.register_buffer("bias", torch.ones(2))

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = self.linear(x) + torch.arange(2, device="cuda") + self.bias.cuda()
        with torch.autocast("cuda", dtype=torch.bfloat16):
            z = x @ x.t()
        return (y * 2 if x.is_cuda else y), z


@pytest.fixture
def model() -> Model:
    return Model().to("cuda")


@pytest.fixture
def x() -> torch.Tensor:
    return torch.ones(3, 4, device="cuda")


def of(model: torch.nn.Module, x: torch.Tensor, **how: Any) -> ExportedProgram:
    return export(model, (x,), dynamic_shapes={"x": {0: Dim("n", min=2, max=64)}}, **how)


def written(program: ExportedProgram) -> io.BytesIO:
    file = io.BytesIO()
    torch.export.save(program, file)
    file.seek(0)
    return file


def same(found: Any, wanted: Any) -> bool:
    return all(torch.equal(a, b) and a.device == b.device for a, b in zip(found, wanted, strict=True))


@pytest.mark.parametrize("strict", [False, True])
def test_programs_are_exported_written_and_read(model: Model, x: torch.Tensor, strict: bool) -> None:
    program = of(model, x, strict=strict)
    read = torch.export.load(written(program))
    for module in (program.module(), read.module(), read.run_decompositions().module()):
        for rows in (x, torch.full((5, 4), 2.0, device="cuda")):
            assert same(module(rows), model(rows))


class Placed(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to("cuda") + torch.arange(4, device="cuda")


class Cast(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        with torch.autocast("cuda", dtype=torch.bfloat16):
            return x @ x.t()


@pytest.mark.parametrize("kind", [Placed, Cast])
def test_the_file_names_cuda_and_is_read(kind: type[torch.nn.Module], x: torch.Tensor) -> None:
    file = written(of(kind(), x))
    with zipfile.ZipFile(file) as parts:
        (text,) = (
            parts.read(name) for name in parts.namelist() if name.endswith(("model.json", "exported_program.json"))
        )
    assert b'"cuda"' in text and b'"musa' not in text  # an older torch writes stacks, with files of torch_musa in them
    file.seek(0)
    assert torch.equal(torch.export.load(file).module()(x), kind()(x))


@pytest.mark.parametrize("target", ["cuda", torch.device("cuda", 1), {"cpu": "cuda:1"}])
def test_a_program_made_on_the_cpu_is_moved(target: Any) -> None:
    from torch.export.passes import move_to_device_pass

    linear = torch.nn.Linear(4, 2)
    moved = move_to_device_pass(export(linear, (torch.ones(3, 4),)), target).module()
    device = torch.device(target["cpu"] if isinstance(target, dict) else target)
    out = moved(torch.ones(3, 4, device=device))
    assert out.is_cuda and out.device.index == (device.index or 0)


def test_a_program_is_moved_from_one_device_to_another(model: Model, x: torch.Tensor) -> None:
    from torch.export.passes import move_to_device_pass

    program = export(torch.nn.Linear(4, 2).to("cuda"), (x,))
    assert move_to_device_pass(program, {"cuda:0": "cuda:1"}).module()(x.to("cuda:1")).device.index == 1


@pytest.mark.parametrize(
    "compile_it",
    [
        lambda model, x: torch._inductor.aoti_compile_and_package(of(model, x)),
        lambda model, x: torch.compile(model, options={"cpp_wrapper": True})(x),
    ],
    ids=["AOTInductor", "cpp_wrapper"],
)
def test_what_needs_a_cpp_wrapper_says_so(model: Model, x: torch.Tensor, compile_it: Any) -> None:
    with pytest.raises(Exception, match=r"C\+\+ wrapper.* the simulated device has no"):
        compile_it(model, x)


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_flex_attention(backend: str) -> None:
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q = torch.randn(1, 2, 128, 16, device="cuda", requires_grad=True)
    bias = torch.ones(2, device="cuda", requires_grad=True)
    fixed = torch.ones(2, device="cuda")  # without a gradient, and without an effect on the weights
    mask = create_block_mask(lambda b, h, i, j: i >= j, 1, 1, 128, 128, device="cuda")

    @torch.compile(backend=backend, fullgraph=True)
    def attention(q: torch.Tensor, kv: torch.Tensor) -> Any:
        options = {"block_mask": mask, "enable_gqa": True}
        return flex_attention(q, kv, kv, score_mod=lambda score, b, h, i, j: fixed[h] + score * bias[h], **options)

    kv = q.detach()[:, :1].clone().requires_grad_()  # grouped queries
    wanted = torch.nn.functional.scaled_dot_product_attention(
        q * bias[:, None, None], kv, kv, is_causal=True, enable_gqa=True
    )
    with torch.no_grad():
        torch.testing.assert_close(attention(q, kv), wanted, atol=1e-5, rtol=1e-4)
    found = attention(q, kv)
    torch.testing.assert_close(found, wanted, atol=1e-5, rtol=1e-4)
    gradients = [torch.autograd.grad(out.sin().sum(), (q, kv, bias)) for out in (found, wanted)]
    torch.testing.assert_close(*gradients, atol=1e-4, rtol=1e-3)


# An older torch casts in uncompiled FlexAttention alone, on every device.
CASTS = torch._C.DispatchKey.AutocastCPU in torch.ops.higher_order.flex_attention.py_kernels


def test_flex_attention_of_any_length() -> None:
    from torch.nn.attention.flex_attention import flex_attention

    attention = torch.compile(flex_attention, dynamic=True, fullgraph=True)
    for length in (32, 48):
        q = torch.randn(1, 1, length, 16, device="cuda")
        with torch.autocast("cuda", torch.bfloat16):
            found = attention(q, q, q)
        wanted = torch.nn.functional.scaled_dot_product_attention(q, q, q)
        assert found.dtype == (torch.bfloat16 if CASTS else torch.float32)
        torch.testing.assert_close(found.float(), wanted, atol=3e-2, rtol=3e-2)
