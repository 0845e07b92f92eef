"""python -m torchada enable | disable | status."""

from __future__ import annotations

import ctypes
import json
import os
from pathlib import Path

import pytest

from tests.activation.support import ROOT, Environment, Result
from torchada import enable


def command(environment: Environment, *arguments: str, **options) -> Result:
    return environment.run("-m", "torchada", *arguments, **options)


def test_disable_and_enable(fresh: Environment) -> None:
    names = ["torchada.pth", "torchada.start"]
    before = [(fresh.site / name).read_bytes() for name in names]
    assert command(fresh, "disable").lines()[:2] == [f"removed {fresh.site / name}" for name in names]
    assert fresh.via() == "off"
    assert command(fresh, "disable").lines()[0].startswith("nothing to remove")
    for _ in range(2):  # enabling twice is enabling once
        assert command(fresh, "enable").lines()[:2] == [f"wrote {fresh.site / name}" for name in names]
        assert fresh.via() == "pth"
    assert [(fresh.site / name).read_bytes() for name in names] == before


def test_uninstall_after_disable(fresh: Environment) -> None:
    command(fresh, "disable").lines()
    fresh.pip("uninstall", "--quiet", "--yes", "torchada")
    assert not list(fresh.site.glob("torchada*"))


def test_status_text(active: Environment, dormant: Environment) -> None:
    text = command(active, "status").stdout
    assert str(active.site / "torchada.pth") in text and "is switched on by pth" in text
    text = command(dormant, "status").stdout
    assert "none (python -m torchada enable" in text and "stays off" in text


def test_status_json(active: Environment) -> None:
    result = command(active, "status", "--json", env={"TORCHADA_SIM_DEVICES": "3", "TORCHADA": "0"})
    facts = json.loads(result.stdout)
    assert facts["start_files"] == [str(active.site / name) for name in enable.FILES]
    assert facts["variables"] == {"TORCHADA": "0", "TORCHADA_SIM_DEVICES": "3"}
    assert facts["environment"] is True
    assert facts["switched_off"] is True
    assert facts["new_process"] is None


def test_status_names_the_sitecustomize(dormant: Environment) -> None:
    result = command(dormant, "status", "--json", env={"PYTHONPATH": str(ROOT / "sitecustomize")})
    facts = json.loads(result.stdout)
    assert facts["sitecustomize"] == str(ROOT / "torchada" / "_site" / "sitecustomize.py")
    assert facts["new_process"] == "sitecustomize"


def obey_permissions() -> None:
    """Before exec: root loses the right to write where the permission bits say no (CAP_DAC_OVERRIDE)."""
    if os.getuid() == 0:
        drop_from_bounding_set, dac_override = 24, 1
        assert ctypes.CDLL(None).prctl(drop_from_bounding_set, dac_override, 0, 0, 0) == 0


@pytest.mark.parametrize("what", ["enable", "disable"])
def test_read_only(fresh: Environment, what: str) -> None:
    if what == "enable":
        command(fresh, "disable").lines()
    fresh.site.chmod(0o555)
    try:
        result = command(fresh, what, preexec_fn=obey_permissions)
    finally:
        fresh.site.chmod(0o755)
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "Permission denied" in line and "TORCHADA=0" in line and "PYTHONPATH=" in line
    assert (fresh.site / "torchada.pth").exists() == (what == "disable")


def test_not_installed_there(tmp_path: Path) -> None:
    bare = Environment(tmp_path / "bare")
    result = command(bare, "enable", env={"PYTHONPATH": str(ROOT)})
    assert result.returncode == 1
    (line,) = result.stderr.splitlines()
    assert "not installed" in line and "pip install" in line
    assert not list(bare.site.glob("torchada*"))


def test_outside_of_an_environment(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr(enable, "is_environment", lambda: False)
    monkeypatch.setattr(enable.shutil, "copyfile", lambda *paths: pytest.fail("wrote a file"))
    assert enable.main("enable", []) == 1
    assert "--yes" in capsys.readouterr().err


def test_outside_of_an_environment_on_demand(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(enable, "is_environment", lambda: False)
    monkeypatch.setattr(enable, "site_directories", lambda: [str(tmp_path)])
    monkeypatch.setattr(enable.sysconfig, "get_path", lambda name: str(tmp_path))
    monkeypatch.setattr(enable, "starts_with", lambda *options, **environment: "pth")
    assert enable.main("enable", ["--yes"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["torchada.pth", "torchada.start"]
    assert enable.main("disable", []) == 0
    assert not list(tmp_path.iterdir())


def test_what_an_environment_is(active: Environment, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    code = "from torchada.enable import is_environment; print(is_environment())"
    assert active.run("-c", code).lines() == ["True"]
    monkeypatch.setattr(enable.sys, "prefix", str(tmp_path))
    monkeypatch.setattr(enable.sys, "base_prefix", str(tmp_path))
    assert not enable.is_environment()
    (tmp_path / "conda-meta").mkdir()
    assert enable.is_environment()
