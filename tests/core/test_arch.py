"""MUSA's architectures: names, what is built for, and what is asked for it."""

import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from torchada import arch
from torchada.arch import ARCHS, MusaArch, arch_flags, cache_tag, target_archs, torch_arch_list
from torchada.errors import TorchadaWarning

S4000, S5000 = ARCHS["mp_22"], ARCHS["mp_31"]


@pytest.fixture(autouse=True)
def bare(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine without devices and toolkit, of which nothing has been asked yet."""
    monkeypatch.setitem(sys.modules, "torch_musa", None)
    monkeypatch.setattr(arch, "_asked", [])
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("MUSA_HOME", str(tmp_path / "musa"))
    for name in ("MTGPU_TARGET", "OTHER_TARGET"):
        monkeypatch.delenv(name, raising=False)


def musa_info(folder: Path, answer: str, status: int = 0) -> Path:
    """A stand-in for musaInfo that counts how often it was run."""
    folder.mkdir(parents=True, exist_ok=True)
    program, count = folder / "musaInfo", folder / "count"
    program.write_text(f"#!/bin/sh\necho run >> {count}\n/bin/cat <<'END'\n{answer}\nEND\nexit {status}\n")
    program.chmod(0o755)
    return count


def devices(monkeypatch: pytest.MonkeyPatch, *capabilities: tuple[int, int], initialised: bool = True) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("this would initialise MUSA")

    monkeypatch.setitem(
        sys.modules,
        "torch_musa",
        SimpleNamespace(
            is_initialized=lambda: initialised,
            device_count=lambda: len(capabilities) if initialised else refuse(),
            get_device_capability=lambda index: capabilities[index] if initialised else refuse(),
            get_device_name=lambda index: f"MTT S{index}" if initialised else refuse(),
        ),
    )


def test_what_is_known() -> None:
    assert (S5000.name, S5000.capability, S5000.number, str(S5000)) == ("mp_31", (3, 1), 31, "mp_31")
    assert "MTT S5000" in S5000.devices and S5000.fp8 is True and S5000.fp4 is False
    assert list(ARCHS.values()) == sorted(ARCHS.values())
    with pytest.raises(TypeError):
        ARCHS["mp_99"] = S5000  # type: ignore[index]


def test_capability_alone_identifies() -> None:
    other = MusaArch(3, 1, ("another card",), fp8=False)
    assert other == S5000 and hash(other) == hash(S5000) and len({other, S5000}) == 1
    assert MusaArch(2, 2) < MusaArch(3, 0) < S5000 != S4000
    assert MusaArch.of(3, 1) is S5000 and MusaArch.of(9, 9).fp8 is None


@pytest.mark.parametrize("token", ["mp_31", "mp31", "3.1", "31"])
def test_tokens(token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MusaArch.parse(token) is S5000
    monkeypatch.setenv("MTGPU_TARGET", f" mp_22 ;{token}\t2.2; ")
    assert target_archs(("MTGPU_TARGET",)) == (S4000, S5000) == target_archs("MTGPU_TARGET")


@pytest.mark.parametrize(
    "text", ["mp_", "mp-31", "310", "3", "3.1.0", "mp_3.1", "sm_90", "mp_31,mp_22", " ", ";", " ; "]
)
def test_wrong_values(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MTGPU_TARGET", text)
    with pytest.raises(ValueError, match="MTGPU_TARGET"):
        target_archs(("MTGPU_TARGET",))
    monkeypatch.delenv("MTGPU_TARGET")
    with pytest.raises(ValueError, match="default"):
        target_archs(("MTGPU_TARGET",), default=text)


def test_the_first_variable_with_a_value_decides(monkeypatch: pytest.MonkeyPatch) -> None:
    both = ("MTGPU_TARGET", "OTHER_TARGET")
    assert target_archs(both) == (S5000,) and target_archs(both, default="2.2") == (S4000,)
    monkeypatch.setenv("OTHER_TARGET", "22")
    assert target_archs(both) == (S4000,)
    monkeypatch.setenv("MTGPU_TARGET", "")  # a shell's way to unset
    assert target_archs(both) == (S4000,)
    monkeypatch.setenv("MTGPU_TARGET", "31")
    assert target_archs(both) == (S5000,)


LISTING = """
device#                           0
Name:                             MTT S4000
major:                            2
minor:                            2
multiProcessorCount:              48

device#                           1
Name:                             MTT S5000
major:                            3
minor:                            1
multiProcessorCount:              56
"""


@pytest.mark.parametrize(
    ("answer", "found"),
    [
        (LISTING, (S4000, S5000)),
        (
            "Device 0: MTT S5000, compute capability 3.1, VMM: yes\nDevice 1: MTT S5000, compute capability 3.1",
            (S5000,),
        ),
        ("compute capability:  2.2", (S4000,)),
    ],
)
def test_musa_info_is_read_once(answer: str, found: tuple[MusaArch, ...], tmp_path: Path) -> None:
    count = musa_info(tmp_path, answer)
    for _ in range(3):
        assert target_archs(("MTGPU_TARGET",), default="mp_21") == found
    assert count.read_text() == "run\n"
    assert target_archs(("MTGPU_TARGET",), default="mp_21", check_device=True) == found  # it is known


def test_musa_info_of_the_toolkit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHADA_PLATFORM", "musa")
    musa_info(tmp_path / "musa" / "bin", LISTING)
    assert target_archs(("MTGPU_TARGET",)) == (S4000, S5000)


def test_musa_info_that_tells_nothing(tmp_path: Path) -> None:
    count = musa_info(tmp_path, "no device", status=1)
    assert target_archs(("MTGPU_TARGET",)) == target_archs(("MTGPU_TARGET",)) == (S5000,)
    assert count.read_text() == "run\n"
    arch._asked.clear()
    musa_info(tmp_path, "something else")
    with pytest.warns(TorchadaWarning, match="tells no architecture"):
        assert target_archs(("MTGPU_TARGET",)) == (S5000,)
    arch._asked.clear()
    (tmp_path / "musaInfo").write_text("neither a script nor a program")
    with pytest.warns(TorchadaWarning, match="cannot be asked"):
        assert target_archs(("MTGPU_TARGET",)) == (S5000,)


def test_visible_devices(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = musa_info(tmp_path, LISTING)
    devices(monkeypatch, (2, 2), (2, 2))
    assert target_archs(("MTGPU_TARGET",)) == (S4000,)
    assert not count.exists()
    devices(monkeypatch, (2, 1), initialised=False)  # asks musaInfo, never the devices
    assert target_archs(("MTGPU_TARGET",)) == (S4000, S5000)
    devices(monkeypatch)
    arch._asked.clear()
    assert target_archs(("MTGPU_TARGET",)) == (S4000, S5000)


def test_check_device(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    count = musa_info(tmp_path, LISTING)
    devices(monkeypatch, (3, 1), (2, 2))
    monkeypatch.setenv("MTGPU_TARGET", "mp_31")
    assert target_archs(("MTGPU_TARGET",)) == (S5000,)
    with pytest.raises(RuntimeError, match=r"musa:1 \(MTT S1\) has the architecture mp_22.* for mp_31 only"):
        target_archs(("MTGPU_TARGET",), check_device=True)
    monkeypatch.setenv("MTGPU_TARGET", "22 31")
    assert target_archs(("MTGPU_TARGET",), check_device=True) == (S4000, S5000)
    monkeypatch.delenv("MTGPU_TARGET")
    assert target_archs(("MTGPU_TARGET",), check_device=True) == (S5000, S4000)
    devices(monkeypatch, (2, 1), initialised=False)
    assert target_archs(("MTGPU_TARGET",), check_device=True) == (S5000,)  # neither MUSA nor a process is started
    assert not count.exists()


def test_for_compilers_and_caches() -> None:
    assert arch_flags([S4000, "3.1"]) == ["--offload-arch=mp_22", "--offload-arch=mp_31"]
    assert torch_arch_list((S4000, S5000, S5000)) == "22;31"
    assert cache_tag([S5000], "5.2.0") == cache_tag(["31"], "50200") == "mp31_mu50200"
    assert cache_tag([S5000, S4000], "4.3") == cache_tag([S4000, S5000], "4.3.0") == "mp22_mp31_mu40300"
    with pytest.raises(ValueError, match="no version of MUSA"):
        cache_tag([S5000], "newest")
    with pytest.raises(TypeError, match="sequence"):
        arch_flags("mp_31")


def test_cache_tag_asks_torch_musa(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.version", SimpleNamespace(musa="40300"))
    assert cache_tag([S5000]) == "mp31_mu40300"
    monkeypatch.setitem(sys.modules, "torch.version", None)
    monkeypatch.setattr(arch, "_local_version", lambda: "5.2.0")
    assert cache_tag([S5000]) == "mp31_mu50200"
    monkeypatch.setattr(arch, "_local_version", lambda: None)
    assert cache_tag([S5000]) == "mp31_mu0"


def test_on_the_simulated_device() -> None:
    code = (
        "import sys; from torchada.arch import *; assert 'torch' not in sys.modules\n"
        "import torch; assert not torch.cuda.is_initialized()\n"
        "torch.zeros(1, device='cuda'); print(*target_archs('MTGPU_TARGET', check_device=True), cache_tag(['31']))\n"
    )
    env = {**os.environ, "TORCHADA_SIMULATE": "1", "TORCHADA_SIM_DEVICE": "S4000", "PATH": os.defpath}
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "mp_22 mp31_mu40300\n"), done.stderr
