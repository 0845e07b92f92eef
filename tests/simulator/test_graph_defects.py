"""The operators that torch_musa cannot capture in a graph, and that it can without the defect."""

import pytest

from tests.simulator.forked import Forked


@pytest.fixture(scope="module")
def process():
    forked = Forked()
    yield forked
    forked.close()


def with_and_without(process, defect, code):
    for broken in (True, False):
        process.run(f"import torch_musa\nbroken = {broken}\n{code}", TORCHADA_SIM_DEFECTS=f"{'-+'[broken]}{defect}")


CAPTURE = """
x = torch.rand(4, device="musa") + 0.5
graph = torch_musa.MUSAGraph()
try:
    with torch_musa.graph(graph):
        y = {operation}
except RuntimeError as error:           # of the end of the capture; what failed inside is its context
    assert broken and "aten::{name}" in str(error.__context__), (error, error.__context__)
else:
    assert not broken
    x.fill_(2.0)
    graph.replay()
    torch_musa.synchronize()
    {check}
assert {operation} is not None      # the device works on
"""


def test_log_capture(process):
    for operation in ("torch.log(x)", "x.log_()"):
        check = "assert y.cpu().allclose(torch.full((4,), 0.6931472)), y"
        with_and_without(process, "log_capture", CAPTURE.format(operation=operation, name="log", check=check))


def test_multinomial_capture(process):
    operation, check = "torch.multinomial(x, 2)", "assert y.shape == (2,) and y.max().item() < 4"
    with_and_without(
        process, "multinomial_capture", CAPTURE.format(operation=operation, name="multinomial", check=check)
    )
