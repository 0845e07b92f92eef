"""triton.language.extra.cuda in a Triton for MUSA: a stand-in package with Triton's layout."""

import textwrap

import pytest


@pytest.fixture
def triton(tmp_path):
    """A directory with a package ``triton`` that has ``extra.musa`` and no ``extra.cuda``."""
    extra = tmp_path / "packages" / "triton" / "language" / "extra"
    (extra / "musa").mkdir(parents=True)
    (extra.parent.parent / "__init__.py").write_text("__version__ = '3.1.0'\n")
    (extra.parent / "__init__.py").write_text("from . import extra\n")
    (extra / "__init__.py").write_text("from . import musa\n")
    (extra / "musa" / "__init__.py").write_text("from . import libdevice\n\ndef globaltimer():\n    return 7\n")
    (extra / "musa" / "libdevice.py").write_text("def tanh(x):\n    return x\n")
    return tmp_path / "packages"


CHECK = """
    import triton.language as tl
    import triton.language.extra.cuda as cuda
    from triton.language.extra.cuda import libdevice
    import triton.language.extra.cuda.libdevice as again
    assert tl.extra.cuda is cuda is tl.extra.musa
    assert libdevice is again is tl.extra.musa.libdevice
    assert tl.extra.cuda.globaltimer() == 7
    for name in ("gdc_wait", "gdc_launch_dependents"):
        try:
            getattr(tl.extra.cuda, name)()
        except NotImplementedError as error:
            assert name in str(error)
        else:
            raise AssertionError(name)
"""
UNDONE = """
    torchada.deactivate()
    assert not hasattr(tl.extra, "cuda") and "triton.language.extra.cuda" not in sys.modules
    assert not hasattr(tl.extra.musa, "gdc_wait")
"""


@pytest.mark.parametrize(
    "first",
    [
        "import torchada, torch, triton",
        "import torchada, triton, torch",
        "import triton, torchada, torch",
        "import torch, triton, torchada",
    ],
)
def test_extra_cuda(run_python, triton, first):
    run_python(f"import sys; sys.path.insert(0, {str(triton)!r})\n{first}" + textwrap.dedent(CHECK + UNDONE))


def test_a_module_that_was_there_comes_back(run_python, triton):
    own = triton / "triton" / "language" / "extra" / "cuda"
    own.mkdir()
    (own / "__init__.py").write_text("def gdc_wait():\n    return 'native'\n")
    body = """
        assert tl.extra.cuda is tl.extra.musa
        torchada.deactivate()
        assert tl.extra.cuda.gdc_wait() == "native"
        import triton.language.extra.cuda as cuda
        assert cuda is tl.extra.cuda and sys.modules["triton.language.extra.cuda"] is cuda
    """
    first = "import triton.language.extra.cuda\nimport triton.language as tl\nimport torchada, torch"
    run_python(f"import sys; sys.path.insert(0, {str(triton)!r})\n{first}" + textwrap.dedent(body))


def test_a_triton_without_musa_is_left_alone(run_python, triton):
    extra = triton / "triton" / "language" / "extra"
    (extra / "musa").rename(extra / "cuda")
    (extra / "__init__.py").write_text("from . import cuda\n")
    body = """
        import triton.language as tl
        assert tl.extra.cuda.__name__ == "triton.language.extra.cuda"
        assert not hasattr(tl.extra.cuda, "gdc_wait")
    """
    run_python(f"import sys; sys.path.insert(0, {str(triton)!r})\nimport torchada, torch" + textwrap.dedent(body))


def test_without_triton_nothing_happens(run_python):
    run_python(
        """
        import sys
        import torchada, torch
        assert not any(name.startswith("triton") for name in sys.modules)
        """
    )
