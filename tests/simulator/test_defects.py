"""Each known defect of torch_musa's operators: there where the version has it, and not where it has not."""

import contextlib

import pytest
import torch
import torch_musa

import torchada

CORE = torch_musa._MUSAC


@pytest.fixture(autouse=True)
def _torch_musa_alone():
    """torchada mends what is shown here."""
    with torchada.disabled():
        yield


@contextlib.contextmanager
def defects(*names):
    """The device with exactly these defects."""
    before = [name for name, on in CORE._sim_defects().items() if on]
    CORE._sim_set_defects(names)
    try:
        yield
    finally:
        CORE._sim_set_defects(before)


def host_syncs(function):
    before = CORE._sim_counters()["host_syncs"]
    function()
    return CORE._sim_counters()["host_syncs"] - before


def test_float64_log_inplace():
    values = torch.tensor([1.0, 2.0], dtype=torch.float64)
    with defects("float64_log_inplace"):
        x = values.to("musa")
        with pytest.raises(NotImplementedError, match=r"Could not run 'aten::log_' .* 'musa' backend.* dtype Double"):
            x.log_()
        assert x.tolist() == [1.0, 2.0]
        torch.testing.assert_close(x.log().cpu(), values.log())  # out of place it works
        torch.testing.assert_close(values.float().to("musa").log_().cpu(), values.float().log())
    with defects():
        x = values.to("musa")
        assert x.log_() is x
        torch.testing.assert_close(x.cpu(), values.log())


needs_out_dtype = pytest.mark.skipif(
    "dtype" not in torch.ops.aten.mm.overloads(), reason="torch.mm of this torch has no out_dtype"
)


@needs_out_dtype
@pytest.mark.parametrize("shape", [(3, 4), (2, 3, 4)])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_mm_out_dtype(shape, dtype):
    torch.manual_seed(0)
    a, b = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype).mT
    product = torch.mm if len(shape) == 2 else torch.bmm
    expected = product(a.float(), b.float())
    with defects("mm_out_dtype"):
        result = product(a.to("musa"), b.to("musa"), out_dtype=torch.float32)
        assert result.dtype == torch.float32 and result.shape == expected.shape
        assert not result.any().item()
        torch.testing.assert_close(product(a.to("musa"), b.to("musa")).float().cpu(), expected, rtol=1e-2, atol=1e-2)
    with defects():
        result = product(a.to("musa"), b.to("musa"), out_dtype=torch.float32)
        torch.testing.assert_close(result.cpu(), expected)  # summed and kept in float
        out = torch.empty(0, device="musa")
        assert product(a.to("musa"), b.to("musa"), out_dtype=torch.float32, out=out) is out
        torch.testing.assert_close(out.cpu(), expected)
        base = torch.randn_like(expected)
        added = (torch.addmm if len(shape) == 2 else torch.baddbmm)(
            base.to("musa"), a.to("musa"), b.to("musa"), beta=2, alpha=3, out_dtype=torch.float32
        )
        torch.testing.assert_close(added.cpu(), 2 * base + 3 * expected)


@needs_out_dtype
def test_out_dtype_is_checked():
    half, double = (torch.ones(2, 2, dtype=dtype, device="musa") for dtype in (torch.float16, torch.float64))
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(half, half, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="input dtypes must be the same"):
        torch.mm(half, double, out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="dtype of the provided out tensor"):
        torch.mm(half, half, out_dtype=torch.float32, out=torch.empty(2, 2, dtype=torch.float16, device="musa"))


def test_bool_mul_sync():
    x = torch.tensor([1.0, float("inf"), float("nan")], device="musa")
    yes = x > 0
    with defects("bool_mul_sync"):
        assert host_syncs(lambda: yes * yes) == 1
        assert host_syncs(lambda: yes.clone().mul_(yes)) == 1
        assert host_syncs(lambda: torch.mul(yes, yes, out=torch.empty_like(yes))) == 1
        assert host_syncs(lambda: torch.isfinite(x)) >= 1  # made of such a product
        assert host_syncs(lambda: (x * x, x * yes, x.abs() < float("inf"))) == 0
        assert torch.isfinite(x).tolist() == [True, False, False]
    with defects():
        assert host_syncs(lambda: (yes * yes, torch.isfinite(x))) == 0
        assert torch.isfinite(x).tolist() == [True, False, False]
