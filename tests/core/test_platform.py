"""Which platform this is, and what counts as a GPU device."""

import pytest
import torch

import torchada
from torchada import Platform


def test_here():
    assert torchada.detect_platform() is Platform.MUSA
    assert torchada.is_musa_platform() is True
    assert torchada.is_cuda_platform() is False
    assert [platform.value for platform in Platform] == ["cuda", "musa", "cpu"]


@pytest.mark.parametrize("value", ["cuda", "musa", "cpu", "MUSA", " cuda "])
def test_the_environment_forces_the_answer(monkeypatch, value):
    monkeypatch.setenv("TORCHADA_PLATFORM", value)
    assert torchada.detect_platform() is Platform(value.strip().lower())


def test_forced_availability_does_not_change_the_answer(run_python):
    done = run_python(
        "import torchada, torch; print(torchada.detect_platform(), torch.cuda.is_available(), torch.version.cuda)",
        env={"TORCHADA_FORCE_CUDA_AVAILABLE": "1"},
    )
    assert done.stdout.strip() == f"Platform.MUSA True {torch.version.cuda}"


@pytest.mark.parametrize(
    ("thing", "answer"),
    [
        ("cuda", True),
        ("cuda:1", True),
        ("musa:0", True),
        ("cpu", False),
        ("meta", False),
        ("cudagraph", False),
        (0, True),
        (1, True),
        (-1, False),
    ],
)
def test_is_gpu_device(thing, answer):
    assert torchada.is_gpu_device(thing) is answer


def test_is_gpu_device_of_objects():
    assert torchada.is_gpu_device(torch.device("cuda"))
    assert not torchada.is_gpu_device(torch.device("cpu"))
    assert torchada.is_gpu_device(torch.ones(1, device="cuda"))
    assert not torchada.is_gpu_device(torch.ones(1))
    assert torchada.is_gpu_device(torch.nn.Linear(1, 1).cuda().weight)


@pytest.mark.parametrize("thing", [None, True, 1.5, [], object()])
def test_is_gpu_device_refuses_the_rest(thing):
    with pytest.raises(TypeError, match="device, string, tensor or int"):
        torchada.is_gpu_device(thing)


def test_indices_are_no_gpu_on_a_cpu_machine(monkeypatch):
    monkeypatch.setenv("TORCHADA_PLATFORM", "cpu")
    assert torchada.is_gpu_device(0) is False


def test_public_names():
    for name in torchada.__all__:
        assert getattr(torchada, name) is not None or name == "CUDA_HOME"  # None: no toolkit here
    assert set(torchada.__all__) <= set(dir(torchada))
    with pytest.raises(AttributeError, match="no_such"):
        _ = torchada.no_such


def test_status_and_simulate(run_python):
    done = run_python(
        """
        import torchada
        assert torchada.is_active() is False
        torchada.simulate(devices=3)
        assert torchada.is_active() is True
        import torch
        print(torch.cuda.device_count(), torchada.status()["simulated"], torchada.status()["rules"].get("failed", 0))
        torchada.simulate()
        """,
        env={"TORCHADA_SIMULATE": None},
    )
    assert done.stdout.split() == ["3", "True", "0"]


@pytest.mark.parametrize("devices", [-1, 17, "2", 1.5, True])
def test_simulate_refuses_bad_counts(run_python, devices):
    done = run_python(f"import torchada; torchada.simulate({devices!r})", env={"TORCHADA_SIMULATE": None}, ok=False)
    assert done.returncode == 1 and "from 0 to 16" in done.stderr


def test_simulate_after_torch_is_refused(run_python):
    done = run_python("import torchada, torch; torchada.simulate()", env={"TORCHADA_SIMULATE": None}, ok=False)
    assert done.returncode == 1 and "--simulate" in done.stderr.splitlines()[-1]


def test_a_folder_without_code_is_no_torch_musa(run_python, tmp_path):
    """What an uninstall leaves, or a checkout that lies in the working directory."""
    (tmp_path / "torch_musa" / "docs").mkdir(parents=True)
    done = run_python(
        "import torchada, torch; print(torchada.detect_platform(), torchada.is_active())",
        env={"TORCHADA_SIMULATE": None},
    )
    platform = "CPU" if torch.version.cuda is None else "CUDA"
    assert (done.stdout.strip(), done.stderr) == (f"Platform.{platform} False", "")


def test_a_forbidden_torch_musa_is_none(run_python):
    done = run_python(
        "import sys; sys.modules['torch_musa'] = None; import torchada, torch; print(torchada.status()['state'])",
        env={"TORCHADA_SIMULATE": None},
    )
    assert (done.stdout.strip(), done.stderr) == ("off", "")


@pytest.mark.parametrize(
    "name", ["TORCHADA_FORCE_CUDA_AVAILABLE", "TORCHADA_STRICT", "TORCHADA_SIMULATE", "TORCHADA_PLATFORM"]
)
def test_a_wrong_word_is_told_once_and_torch_works(run_python, name):
    done = run_python(
        "import torchada, torch; print(torch.ones(1).item(), torchada.is_active())", env={name: "perhaps"}
    )
    assert done.stdout.strip() == "1.0 False"
    assert done.stderr.count("\n") == 1 and f"{name}='perhaps'" in done.stderr and "use one of" in done.stderr


def test_a_corrected_variable_clears_the_error(run_python):
    run_python(
        """
        import os, torchada, torch
        assert "perhaps" in str(torchada.status()["error"])
        os.environ["TORCHADA_PLATFORM"] = "musa"
        assert torchada.activate() and torchada.status()["error"] is None
        """,
        env={"TORCHADA_PLATFORM": "perhaps"},
    )
