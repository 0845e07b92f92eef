"""Operators of the device against the CPU: a sample of torch's operator databases, and training."""

import pytest
import torch
import torch_musa

from tests.simulator import opdb
from tests.simulator.disagreements import DISAGREEMENTS, Disagreement
from tests.simulator.test_defects import defects

# One case in so many, by dtype: the seldom used dtypes are sampled more thinly.
PARTS = {"float32": 16, "float16": 30, "bfloat16": 30, "complex64": 30, "int64": 30, "bool": 30, "float8_e4m3fn": 2}


def sample(dtype, parts):
    work = opdb.all_work(list(opdb.DATABASES), [dtype], 2)
    return [item for item in work if item[0].aspect == "fused" or opdb.chosen(item[0], (0, parts))]


@pytest.mark.parametrize("dtype", PARTS)
def test_operators_agree_with_the_cpu(dtype):
    with defects():
        outcomes = [opdb.run_case(case, work) for case, work in sample(dtype, PARTS[dtype])]
    assert sum(outcome.samples for outcome in outcomes) >= len(outcomes) / 2 > 0
    assert not {str(o.case): o.differences for o in outcomes if o.differences and not o.reason}


def test_the_sample_covers_every_database_and_aspect():
    cases = [case for dtype, parts in PARTS.items() for case, _ in sample(dtype, parts)]
    assert {case.database.partition("-")[0] for case in cases} == set(opdb.DATABASES)
    assert {case.aspect for case in cases} >= set(opdb.ASPECTS) | {"training", "fused", "foreach"}


def test_a_wrong_result_is_noticed():
    case = opdb.Case("ops", "add", "float32", "forward")

    def wrong(input, args, kwargs):
        return input + (1 if input.device.type == "musa" else 0)

    for function, differs in (
        (wrong, "not close"),
        (lambda input, args, kwargs: input.t().t() if input.is_musa else input.clone(), "views"),
        (lambda input, args, kwargs: input.double() if input.is_musa else input, "dtype"),
        (lambda input, args, kwargs: input.cpu() if input.is_musa else input.clone(), "is on cpu"),
        (lambda input, args, kwargs: input.view(99) if input.is_musa else input, "device RuntimeError"),
        (lambda input, args, kwargs: torch.ones(3, device=input.device) if input.is_musa else torch.rand(3), "seed"),
    ):
        outcome = opdb.Outcome(case)
        opdb.judge(outcome, function, (torch.ones(2, 2), (), {}))
        assert any(differs in text for text in outcome.differences), (differs, outcome.differences)


def test_a_row_that_explains_nothing_is_noticed(monkeypatch):
    case = opdb.Case("ops", "mm", "float32", "forward")
    row = Disagreement("ops", "mm", "float*", "forward backward", "a test")
    monkeypatch.setattr(opdb, "DISAGREEMENTS", (row,))
    assert opdb.stale([opdb.Outcome(case)]) == [str(row)]
    assert opdb.stale([opdb.Outcome(case, differences=["x"])]) == []


def test_every_explanation_names_something():
    names = {opdb.full_name(op) for op in opdb.invocations.op_db}
    for row in DISAGREEMENTS:
        assert len(row.reason) > 20
        if row.database == "ops" and "*" not in row.op:
            assert row.op in names or torch.__version__ < "2.13", row


@pytest.mark.parametrize("shape", [(4,), (2, 3), (0, 2), ()])
def test_carrying_keeps_what_a_tensor_is(shape):
    base = torch.arange(24.0).reshape(4, 6)[: shape[0] if shape else 1, ::2]
    pair = opdb.carry((base, base[1:], torch.view_as_complex(torch.ones(2, 2)).conj(), base.t()), "musa")
    assert pair[0].untyped_storage()._cdata == pair[1].untyped_storage()._cdata == pair[3].untyped_storage()._cdata
    assert pair[0].stride() == base.stride() and pair[3].stride() == base.t().stride()
    assert pair[2].is_conj() and torch.equal(pair[0].cpu(), base)


@pytest.mark.parametrize("asynchronous", [False, True])
def test_an_out_argument_that_is_conjugated_lazily(asynchronous):
    torch.manual_seed(0)
    factors, pivots = torch.linalg.lu_factor(torch.randn(3, 3, dtype=torch.complex64))
    right = torch.randn(2, 3, dtype=torch.complex64)
    expected = torch.linalg.lu_solve(factors, pivots, right, left=False)
    given = [value.to("musa") for value in (factors, pivots, right)]
    out = torch.empty_like(given[-1])
    torch_musa._MUSAC._sim_set_async(asynchronous)
    try:
        for _ in range(2):
            assert torch.linalg.lu_solve(*given, left=False, out=out) is out
            torch.testing.assert_close(out.cpu(), expected)
    finally:
        torch_musa._MUSAC._sim_set_async(False)


def test_a_factory_takes_the_layout_of_nested_tensors_for_plain():
    parts = [torch.tensor([1 + 1j, 2 - 1j]), torch.tensor([0j])]
    gradients = []
    for device in ("cpu", "musa"):
        nested = torch.nested.nested_tensor(parts, layout=torch.jagged, device=device, requires_grad=True)
        torch.angle(nested).values().sum().backward()
        gradients.append(nested.grad.values().cpu())
        assert torch.empty(2, layout=nested.layout, device=device).layout == torch.strided
    torch.testing.assert_close(*gradients)
