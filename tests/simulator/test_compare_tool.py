"""torch_musa.utils.compare_tool: the wrong operator is found, the NaN is located, and only what was asked is told."""

import pytest

from tests.simulator.forked import Forked

# An operator that is wrong on the device (too large by 0.01), and one that gives NaN.
PREAMBLE = """
import contextlib, glob, io, os
import torch_musa
from torch_musa.utils import compare_tool
from torch_musa.utils.compare_tool import CompareWithCPU, NanInfTracker, open_module_tracker

library = torch.library.Library("aten", "IMPL")
library.impl("relu", lambda x: torch.clamp_min(x, 0) + 0.01, "PrivateUse1")

def told(mode, work):
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed), mode:
        work(mode)
    return printed.getvalue()

torch.manual_seed(0)
net = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2)).musa()
x = torch.randn(3, 4, device="musa")
forward = lambda mode: net(x)
"""


@pytest.fixture(scope="module")
def process():
    forked = Forked()
    yield forked
    forked.close()


@pytest.fixture
def check(process):
    return lambda code, **env: process.run(PREAMBLE + code, **env)


def test_the_wrong_operator_is_found(check):
    check(
        """
open_module_tracker(net)
text = told(CompareWithCPU(verbose=False), forward)
assert text.count("different on MUSA and CPU") == 1, text
assert "Sequential/ReLU/aten.relu.default (forward): different" in text and "12 of 12 values differ" in text
text = told(CompareWithCPU(), forward)
assert "Sequential/Linear/aten.addmm.default (forward): same" in text, text
assert told(CompareWithCPU(verbose=False), lambda mode: net[0](x)) == ""
"""
    )


def test_the_tolerance_decides(check):
    check(
        """
assert told(CompareWithCPU(verbose=False, atol=0.02), forward) == ""
assert "different" in told(CompareWithCPU(verbose=False, atol=0.009, rtol=0), forward)
"""
    )


def test_lists_of_operators(check):
    check(
        """
for names in (["aten.relu.default"], ["aten.relu"], ["relu"]):
    assert told(CompareWithCPU(verbose=False, white_list=names), forward) == ""
    assert "aten.addmm" not in told(CompareWithCPU(target_list=names), forward)
    assert "different" in told(CompareWithCPU(target_list=names), forward)
assert told(CompareWithCPU(target_list=["aten.relu.out", "rel"]), forward) == ""
"""
    )


def test_steps_and_switches(check):
    check(
        """
def five(mode):
    for number in range(5):
        print("step", number)
        forward(mode)
        mode.step()

for make in (lambda **options: CompareWithCPU(verbose=False, **options),
             lambda **options: NanInfTracker(target_list=["relu", "log"], **options)):
    if make().__class__ is NanInfTracker:
        net.append(torch.nn.Module()); net[-1].forward = lambda y: torch.log(y * 0 - 1)
    def where(**options):
        lines = told(make(**options), five).splitlines()
        at, found = None, []
        for line in lines:
            if line.startswith("step "):
                at = int(line.split()[1])
            elif ", step " in line:
                assert int(line.rpartition(", step ")[2]) == at
                found.append(at)
        return found
    assert where() == [0, 1, 2, 3, 4]
    assert where(start_step=1, end_step=3) == [1, 2]
    assert where(start_step=3) == [3, 4] and where(end_step=1) == [0] and where(start_step=9) == []
    assert where(enabled=False) == []
    assert where(enable_ranks=[0, 2]) == [] and where(enable_ranks=[1]) == [0, 1, 2, 3, 4]
""",
        RANK="1",
    )


def test_changes_in_place_are_compared(check):
    check(
        """
library.impl("mul_.Tensor", lambda x, other: x.copy_(x * other + 1), "PrivateUse1")
text = told(CompareWithCPU(verbose=False), lambda mode: x.clone().mul_(torch.tensor(2.0, device="musa")))
assert "aten.mul_.Tensor: different" in text, text
y = torch.ones(2, device="musa")
told(CompareWithCPU(), lambda mode: y.add_(1))
assert y.tolist() == [2, 2]                       # once, not twice
"""
    )


def test_results_gradients_and_random_numbers_are_those_without_it(check):
    check(
        """
def train(mode):
    torch.manual_seed(3)
    net.zero_grad()
    loss = (torch.nn.functional.dropout(net(x)) * torch.rand(3, 2, device="musa")).sum()
    loss.backward()
    return [loss.item(), *(p.grad.clone().tolist() for p in net.parameters())]

plain = train(None)
seen = []
text = told(CompareWithCPU(), lambda mode: seen.append(train(mode)))
assert seen[0] == plain
assert "it draws random numbers" in text and "aten.mm.default: same" in text, text
seen.clear()
told(NanInfTracker(), lambda mode: seen.append(train(mode)))
assert seen[0] == plain
told(CompareWithCPU(), lambda mode: print(x, repr(x)))     # printing is not examined
"""
    )


def test_half_and_integers_and_what_the_cpu_cannot_do(check):
    check(
        """
def work(mode):
    a = x.half()
    a @ a.t(); (a > 0).sum(); torch.arange(3, device="musa") // 2; torch.unique(a); x.to("cpu"); x[0, 0].item()
    torch.randn(3, dtype=torch.complex64, device="musa").abs()

text = told(CompareWithCPU(verbose=False), work)
assert text == "", text
"""
    )


def test_nan_and_infinity_are_located(check):
    check(
        """
open_module_tracker(net)
net[1].forward = lambda y: torch.log(y.abs() * 0 - 1) / 0
text = told(NanInfTracker(), forward)
lines = [line for line in text.splitlines() if "in the result" in line]
assert lines[0].startswith("Sequential/ReLU/aten.log.default (forward): 12 NaN in the result"), text
assert told(NanInfTracker(), lambda mode: (x + 1, torch.ones(2, device="musa", dtype=torch.int64) // 2)) == ""
text = told(NanInfTracker(white_list=["log"]), lambda mode: (torch.log(-x.abs()), x / 0))
assert "aten.log" not in text and "12 Inf in the result" in text, text
assert "CPU" not in told(NanInfTracker(), lambda mode: torch.log(-torch.ones(1)))
"""
    )


def test_log_file_and_dumped_arguments(check, tmp_path):
    check(
        f"""
folder = {str(tmp_path)!r}
for again in range(2):
    mode = CompareWithCPU(verbose=False, should_log_to_file=True, output_dir=folder, dump_error_data=True)
    assert "different" in told(mode, forward)
log = open(os.path.join(folder, "CompareWithCPU_rank0.log")).read()
assert log.count("different on MUSA and CPU") == 2, log
first, _ = sorted(glob.glob(os.path.join(folder, "error_data", "aten.relu.default_rank0_*.pt")))
printed = io.StringIO()
with contextlib.redirect_stdout(printed):
    assert compare_tool.compare_for_single_op(first, torch.relu, 0.001, 0.001) is False
    assert compare_tool.compare_for_single_op(first, torch.relu, 0.1, 0.001) is True
    assert compare_tool.compare_for_single_op(first, torch.sigmoid, 0.001, 0.001) is True
    assert compare_tool.nan_inf_track_for_single_op(first, torch.sigmoid) is False
    assert compare_tool.nan_inf_track_for_single_op(first, lambda y: y / 0) is True
assert "relu: different on MUSA and CPU" in printed.getvalue()
mode = NanInfTracker(should_log_to_file=True, output_dir=folder, dump_error_data=True)
told(mode, lambda mode: torch.log(-x.abs()))
saved = torch.load(glob.glob(os.path.join(folder, "error_data", "aten.log.default_rank0_*.pt"))[0])
assert saved["op_name"] == "aten.log.default" and saved["args"][0].equal(-x.abs().cpu()) and saved["out"].isnan().all()
"""
    )


def test_an_exception_inside_restores_everything(check):
    check(
        """
before = torch.Tensor.__repr__
out = __import__("sys").stdout
try:
    with CompareWithCPU(verbose=False) as mode:
        assert torch.Tensor.__repr__ is not before
        raise KeyError
except KeyError:
    pass
assert torch.Tensor.__repr__ is before and __import__("sys").stdout is out
assert told(CompareWithCPU(verbose=False, white_list=["relu"]), forward) == ""
"""
    )


def test_helpers(check):
    check(
        """
t = torch.tensor
close = compare_tool.compare_tensors
assert close(t([1.0, float("nan")]), t([1.0001, float("nan")]), 1e-3, 0) and not close(t([1.0]), t([1.1]), 1e-3, 0)
assert not close(t([1.0]), t([1]), 1, 1) and not close(t([1.0]), t([1.0, 1.0]), 1, 1)
assert not close(t([1]), t([2]), 5, 5)              # integers are compared exactly
same = lambda a, b: compare_tool.recursive_compare(a, b, 1e-3, 1e-3)
with contextlib.redirect_stdout(io.StringIO()):
    assert same((x, [x, {"a": 1}]), (x.cpu(), [x.cpu(), {"a": 1}])) and same(None, None) and same(1.0, 1.0005)
    assert not same((x, x), (x,)) and not same({"a": x}, {"b": x}) and not same(1, 2) and not same(x, None)
cpu = compare_tool.convert_to_cpu((x, [x], "text"))
assert cpu[0] is cpu[1][0] and cpu[0].device.type == "cpu" and cpu[2] == "text"
assert compare_tool.convert_to_musa({"a": t([1.0])})["a"].is_musa
assert [v.dtype for v in compare_tool.convert_to_dtype([x, t([1])], torch.half)] == [torch.half, torch.int64]
shown = "Tensor(shape=(2,), dtype=torch.float32, device=cpu, min=1, max=3, mean=2)"
assert compare_tool.format_tensor(t([1.0, 3.0])) == shown
assert "device=musa:0)" in compare_tool.format_tensor(torch.ones(0, device="musa"))
info = compare_tool.ModuleInfo("Inner", compare_tool.ModuleInfo("Outer", compare_tool.root_module_info), True, False)
assert info.full_name() == "Outer/Inner" and info.name_with_prefix() == "backward: Inner"
"""
    )
