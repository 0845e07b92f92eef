"""Where there is nothing to do torchada leaves no trace (design, invariant 1)."""

import re

import pytest

TRACE = """
import sys
import torch
kinds = [finder if isinstance(finder, type) else type(finder) for finder in sys.meta_path]
print(sorted(kind.__module__ + "." + kind.__name__ for kind in kinds))
print(sorted(vars(torch.cuda)))
print(torch.cuda is sys.modules["torch.cuda"], type(torch.cuda), torch.cuda.is_available(), torch.cuda.device_count())
print(torch.device("cuda:1"), repr(torch.zeros), torch.cuda.__dict__.get("__getattr__"))
print(sorted(name for name in sys.modules if name.startswith("torch_musa")))
try:
    torch.zeros(1, device="cuda")
except Exception as error:
    print(type(error).__name__, error)
"""
CASES = {
    "no torch_musa": {"TORCHADA_SIMULATE": None},
    "switched off": {"TORCHADA": "0"},
    "cuda forced": {"TORCHADA_PLATFORM": "cuda"},
    "cpu forced": {"TORCHADA_PLATFORM": "cpu"},
}


@pytest.mark.parametrize("env", CASES.values(), ids=CASES.keys())
def test_inert(run_python, env):
    plain = run_python(TRACE, env=env | {"PYTHONPATH": None})
    ours = run_python("import torchada\n" + TRACE, env=env)
    assert re.sub(r"0x[0-9a-f]+", "0x", ours.stdout) == re.sub(r"0x[0-9a-f]+", "0x", plain.stdout)
    assert "torchada" not in ours.stderr


@pytest.mark.parametrize("env", CASES.values(), ids=CASES.keys())
def test_inert_when_torch_is_there_already(run_python, env):
    run_python(
        """
        import sys, torch
        before = (list(sys.meta_path), dict(vars(torch.cuda)), dict(vars(torch)))
        import torchada
        assert torchada.activate() is False
        assert torchada.is_active() is False
        assert (list(sys.meta_path), dict(vars(torch.cuda)), dict(vars(torch))) == before
        """,
        env=env,
    )


def test_an_nvidia_build_of_torch_is_cuda(run_python, tmp_path):
    """The stack decides: a CUDA build without any card in the machine."""
    package = tmp_path / "stack" / "torch"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("from .version import cuda\n")
    (package / "version.py").write_text("from typing import Optional\ncuda: Optional[str] = '12.8'\n")
    done = run_python(
        f"""
        import sys
        sys.path.insert(0, {str(package.parent)!r})
        import torchada
        print(torchada.detect_platform(), torchada.is_cuda_platform(), torchada.is_musa_platform())
        import torch
        ours = [finder for finder in sys.meta_path if "torchada" in type(finder).__module__]
        print(torchada.detect_platform(), torchada.is_active(), ours)
        """,
        env={"TORCHADA_SIMULATE": None},
    )
    assert done.stdout.splitlines() == ["Platform.CUDA True False", "Platform.CUDA False []"]


def test_importing_torchada_imports_nothing_else(run_python):
    run_python(
        """
        import sys
        before = set(sys.modules)
        import torchada
        new = set(sys.modules) - before
        assert new <= {"torchada", "torchada.startup", "torchada.inherit"}, new
        """
    )


@pytest.mark.parametrize(
    ("env", "words"),
    [
        ({"TORCHADA": "maybe"}, ["TORCHADA='maybe'", "0", "1"]),
        ({"TORCHADA_PLATFORM": "rocm"}, ["TORCHADA_PLATFORM='rocm'", "cuda, musa, cpu"]),
        ({"TORCHADA_SIMULATE": "ja"}, ["TORCHADA_SIMULATE='ja'", "yes"]),
    ],
)
def test_a_wrong_value_is_told_with_the_right_ones(run_python, env, words):
    done = run_python("import torchada; torchada.activate()", env=env, ok=False)
    assert done.returncode == 1
    assert all(word in done.stderr.splitlines()[-1] for word in words), done.stderr


def test_a_wrong_value_does_not_break_torch(run_python):
    done = run_python("import torchada, torch; print(torch.ones(1))", env={"TORCHADA_PLATFORM": "rocm"})
    assert done.stdout.strip() == "tensor([1.])"
    assert done.stderr.count("TORCHADA_PLATFORM") == 1 and len(done.stderr.splitlines()) == 1
