"""The snippets on the simulated device."""

import inspect
import re
import sys
from pathlib import Path

import pytest
import torch
import torch_musa

from tests.cuda.names import PUBLIC_NAMES
from torchada.coverage import UNDECIDED, decisions, page
from torchada.engine import ENGINE
from torchada.rules import Table

from . import every

SNIPPETS = every()
ASKS_THE_DRIVER = ("modules.attention_of_these_shapes",)  # of NVIDIA, in C++, where torch is built for CUDA


@pytest.fixture(autouse=True)
def _as_before():
    yield
    torch.cuda.set_device(0)
    torch.cuda.synchronize()
    torch.cuda.empty_cache()


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", SNIPPETS)
def test_snippet(name):
    if name in ASKS_THE_DRIVER and torch.version.cuda is not None:
        pytest.skip("the vendor's torch is not built for CUDA, this one is")
    SNIPPETS[name]()


def test_there_are_enough():
    assert len(SNIPPETS) >= 150


def test_they_are_plain_cuda_programs():
    for name, snippet in SNIPPETS.items():
        text = inspect.getsource(sys.modules[snippet.__module__]).lower()
        assert "musa" not in text and "torchada" not in text, name
        assert inspect.signature(snippet).parameters == {}, name


def test_names_answered_by_the_default_are_exercised():
    """A name without a row of its own has no test of its own either: some snippet uses it."""
    text = "\n".join({inspect.getsource(sys.modules[snippet.__module__]) for snippet in SNIPPETS.values()})
    used = set(re.findall(r"\w+", text))
    installed = set(PUBLIC_NAMES["2.13.0"]["torch.cuda"])
    left = sorted(
        f"{decision.module}.{decision.name}"
        for decision in decisions(ENGINE.table)
        if decision.test == "tests/snippets" and decision.name not in used
        if decision.module != "torch.cuda" or decision.name in installed
        if hasattr(sys.modules.get(decision.module), decision.name)
    )
    assert not left, f"write a snippet that uses: {left}"
    assert torch_musa.__simulated__


def test_the_page_is_fresh_and_complete():
    """docs/coverage.md is made from the rows (`python -m torchada docs --output docs/coverage.md`)."""
    found = decisions(ENGINE.table)
    assert [decision for decision in found if decision.verb == UNDECIDED] == []
    assert page(ENGINE.table) == (Path(__file__).parents[2] / "docs" / "coverage.md").read_text()


def test_a_name_nobody_decided_about_shows():
    bare = Table(ENGINE.table.mirrors.values(), ())
    assert any(decision.verb == UNDECIDED and decision.name == "GreenContext" for decision in decisions(bare))
