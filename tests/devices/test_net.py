"""The safety net: CUDA devices that no detour of a Python callable can see."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

# As that for MUSA is: a build for CUDA looks for NVIDIA's driver where C++ meets a CUDA device.
of_a_build_without_cuda = pytest.mark.skipif(torch.version.cuda is not None, reason="this torch is built for CUDA")

# Operators called as operators parse their arguments in C++, and a CUDA device made before activation is of type cuda.
CODE = """
import torch
old = torch.device("cuda:1"), torch.device("cuda")
import torchada
aten = torch.ops.aten
x = torch.ones(2)
for device, index in ((old[0], 1), (old[1], 0), ("cuda:1", 1)):
    made = [
        aten.zeros.default([2], device=device),
        aten.empty.memory_format([2], device=device),
        aten.full.default([2], 1.0, device=device),
        aten.arange.default(3, device=device),
        aten.zeros_like.default(x, device=device),
        aten.new_zeros.default(x, [2], device=device),
        aten.rand.default([2], device=device),
        aten.empty_strided.default([2], [1], device=device),
        aten.scalar_tensor.default(1.0, device=device),
    ]
    for tensor in made:
        assert (tensor.device.type, tensor.device.index) == ("musa", index), (device, tensor.device)
for make in (aten._to_copy.default, aten.to.dtype_layout):
    for source in (x, x.cuda()):
        assert make(source, device=old[0]).device == torch.device("cuda:1")
        try:  # torch asks for the current CUDA device before any operator runs: an error, never a wrong device
            make(source, device=old[1])
        except RuntimeError as error:
            assert "not linked with support for cuda" in str(error)
        else:
            raise AssertionError("expected an error")
print("ok")
"""


@of_a_build_without_cuda
def test_operators_with_a_cuda_device(run_python: Callable[..., Any]) -> None:
    assert run_python(CODE).stdout.strip() == "ok"


@of_a_build_without_cuda
def test_without_the_net(run_python: Callable[..., Any]) -> None:
    code = CODE.replace("import torchada\n", "import torchada, torchada.engine as e\n"
                        "e.ENGINE.ledger.state('torch.library:Library').undo()\n")  # fmt: skip
    done = run_python(code, ok=False)
    assert done.returncode != 0 and "CUDA" in done.stderr


SCRIPT = """
import torch
@torch.jit.script
def make(n: int):
    return torch.zeros([n], device=torch.device("cuda:1")), torch.ones([n], device=torch.device("cuda"))
@torch.jit.script
def move(x):
    return x.to(torch.device("cuda:1"))
first, second = make(2)
assert first.device == torch.device("cuda:1") and second.device == torch.device("cuda:0")
assert move(torch.ones(2)).device == torch.device("cuda:1")
"""


def test_torchscript_constants(run_python: Callable[..., Any], tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    run_python("import torchada, runpy, sys; runpy.run_path(sys.argv[1])", str(tmp_path / "script.py"))


def test_an_operator_without_a_device_says_so() -> None:
    from torchada.shims.net import _redispatch

    with pytest.raises(NotImplementedError, match="there is no CUDA device here"):
        _redispatch(torch.ops.aten.add.Tensor, torch.ones(1), torch.ones(1))
