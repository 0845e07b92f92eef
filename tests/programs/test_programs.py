"""Programs written for CUDA run unmodified: in every way, with the same numbers, and those of the CPU."""

from __future__ import annotations

import pytest

from tests.programs.support import EXAMPLES, SHORT, Ways, has_no_vendor_name, worst

PROGRAMS = sorted(SHORT)
# Single precision; the simulated device computes with the CPU's kernels, but not always with the same one (fused
# optimiser, attention), and training amplifies rounding.
TOLERANCE = {
    "compiled.py": 1e-4,
    "digits.py": 1e-4,
    "gpt.py": 1e-4,
    "transformers_trainer.py": 1e-4,
    "diffusion.py": 1e-4,
}


def test_every_example_is_tested_and_knows_nothing_of_us() -> None:
    programs = {path.name: path.read_text() for path in EXAMPLES.glob("*.py")}
    assert sorted(programs) == PROGRAMS
    assert [name for name, source in programs.items() if not has_no_vendor_name(source)] == []


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_all_ways_give_the_same_numbers(ways: Ways, name: str) -> None:
    started = {way: ways.start_short(way, name) for way in ("runner", "first_line", "start_file")}
    results = {way: future.result().result for way, future in started.items()}
    assert "(simulated)" in results["runner"]["device"]
    assert results["first_line"] == results["runner"]
    assert results["start_file"] == results["runner"]


@pytest.mark.slow
@pytest.mark.parametrize("name", PROGRAMS)
def test_loss_curve_agrees_with_the_cpu(ways: Ways, name: str) -> None:
    on_cpu, on_device = (ways.short(way, name).result for way in ("plain", "runner"))
    assert on_cpu["device"] == "CPU"
    assert on_device["losses"][-1] < 0.9 * on_device["losses"][0]
    assert worst(on_cpu["losses"], on_device["losses"]) < TOLERANCE[name]


@pytest.mark.slow
def test_digits_learns_in_mixed_precision_and_shows_it(ways: Ways) -> None:
    run = ways.run("runner", "digits.py")
    assert run.result["accuracy"] >= 0.97
    assert run.result["peak_bytes"] > 2**20
    for text in ("(simulated)", "epoch  8", "on the device", "fp16 autocast", "peak memory"):
        assert text in run.output
    (line,) = run.errors.splitlines()  # no warning, and the summary once, not from the data loading workers too
    assert line.startswith("torchada ") and "(simulated)" in line and "rules active" in line
    single = ways.short("plain", "digits.py").result["losses"]
    # Half precision rounds to 3 digits, and the steps are large: the curves keep their shape, not their digits.
    assert worst(run.result["losses"][: len(single)], single) < 0.15


@pytest.mark.slow
def test_digits_resumes_where_it_stopped(ways: Ways) -> None:
    straight = ways.short("runner", "digits.py").result
    ways.run("runner", "digits.py", "--fp32", "--epochs", "2", "--checkpoint", "state.pt")
    resumed = ways.run("start_file", "digits.py", "--fp32", "--epochs", "3", "--resume", "state.pt").result
    assert len(straight["losses"]) == 3
    assert worst(resumed["losses"], straight["losses"]) < 1e-5
    elsewhere = ways.run("plain", "digits.py", "--device", "cpu", "--epochs", "3", "--resume", "state.pt").result
    assert elsewhere["device"] == "CPU"
    assert worst(elsewhere["losses"], straight["losses"]) < 1e-4


@pytest.mark.slow
def test_gpt_learns_in_bfloat16(ways: Ways) -> None:
    result = ways.run("runner", "gpt.py").result
    assert result["validation"] < 2.0  # the value its --help states
    assert result["sample"].startswith("def ")
    assert len(result["sample"]) > 100


@pytest.mark.slow
def test_second_device(ways: Ways) -> None:
    first = ways.short("runner", "digits.py").result
    second = ways.run("runner", "digits.py", *SHORT["digits.py"], "--device", "cuda:1").result
    assert second["losses"] == first["losses"]
    assert second["peak_bytes"] == first["peak_bytes"]


@pytest.mark.slow
def test_trainer_uses_the_device_and_learns_by_heart(ways: Ways) -> None:
    result = ways.run("runner", "transformers_trainer.py", "--bf16").result
    assert result["where"] == "musa:0"
    assert result["peak_bytes"] > 2**20
    assert result["losses"][-1] < 0.5
    assert result["known"], result["answer"]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["digits.py", "transformers_trainer.py"])
def test_forced_availability_changes_no_number(ways: Ways, name: str) -> None:
    assert ways.short("forced", name).result == ways.short("runner", name).result


@pytest.mark.slow
def test_diffusion_runs_on_the_device(ways: Ways) -> None:
    on_cpu, on_device = (ways.short(way, "diffusion.py").result for way in ("plain", "runner"))
    assert on_device["where"] == "musa:0"
    assert on_device["peak_bytes"] > 2**20
    assert len(on_device["drawing"]) == len(on_cpu["drawing"])
