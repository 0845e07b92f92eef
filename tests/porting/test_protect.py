"""What the porter leaves alone without being told: installed packages, wherever they are; journals on other disks."""

import os
import sys
from pathlib import Path

import pytest

from torchada.errors import ConfigError
from torchada.porting import ptx_mode
from torchada.porting.journal import Journal
from torchada.porting.protect import Protection, package_roots
from torchada.porting.tree import walk

CUDA, MUSA = "cudaFree(p);\n", "musaFree(p);\n"


def test_the_journal_may_be_on_another_file_system(tmp_path, monkeypatch):
    replace = os.replace

    def apart(source, target):
        if Path(source).parent != Path(target).parent and "originals" not in str(target):
            raise OSError(18, "Invalid cross-device link")
        replace(source, target)

    project = tmp_path / "project"
    project.mkdir()
    (project / "top.cu").write_text(CUDA)
    monkeypatch.setattr(os, "replace", apart)
    journal = Journal(project, tmp_path / "journal")
    with journal.locked():
        journal.replace("top.cu", CUDA.encode(), MUSA.encode())
    assert (project / "top.cu").read_text() == MUSA
    assert not list(tmp_path.rglob(".torchada-new-*"))
    (project / ".torchada-new-1").touch()  # as a kill leaves it
    with journal.locked(wait=True):
        pass
    assert not list(tmp_path.rglob(".torchada-new-*"))


def test_what_ptx_becomes(monkeypatch):
    monkeypatch.delenv("TORCHADA_PORT_PTX", raising=False)
    assert ptx_mode() == "error"
    monkeypatch.setenv("TORCHADA_PORT_PTX", "stub")
    assert ptx_mode() == "stub"
    monkeypatch.setenv("TORCHADA_PORT_PTX", "drop")
    with pytest.raises(ConfigError, match="use one of"):
        ptx_mode()


def test_packages_are_found_and_never_imported(tmp_path, monkeypatch):
    package = tmp_path / "checkout" / "torch_musa"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("raise SystemExit('imported')")
    (package / "k.cu").write_text(CUDA)
    (package.parent / "setup.py").touch()
    (package.parent / "other.cu").write_text(CUDA)
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "torch_musa", raising=False)
    package_roots.cache_clear()
    try:
        assert set(package_roots("torch_musa")) == {str(package), str(package.parent)}
        tree = walk(tmp_path)
        assert tree.sources == []
        assert [s.why for s in tree.skipped] == ["the package torch_musa is installed from there"]
        assert "torch_musa" in Protection().root(package.parent)
    finally:
        package_roots.cache_clear()
    assert "torch_musa" not in sys.modules


def test_editable_installs_are_protected(tmp_path, monkeypatch):
    source, site = tmp_path / "src tree", tmp_path / "site"
    info = site / "torch_musa-9.dist-info"
    info.mkdir(parents=True)
    (source / "csrc").mkdir(parents=True)
    (source / "csrc" / "a.cu").write_text(CUDA)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch_musa\nVersion: 9\n")
    (info / "direct_url.json").write_text(f'{{"dir_info": {{"editable": true}}, "url": "{source.as_uri()}"}}')
    monkeypatch.syspath_prepend(str(site))
    package_roots.cache_clear()
    try:
        assert walk(tmp_path).sources == []
    finally:
        package_roots.cache_clear()


def test_a_project_below_opt_is_a_project(tmp_path, monkeypatch):
    monkeypatch.setattr("torchada.porting.protect.SYSTEM", (str(tmp_path),))
    (tmp_path / "mine" / "csrc").mkdir(parents=True)
    assert Protection().root(tmp_path / "mine" / "csrc") == "it belongs to the system"
    (tmp_path / "mine" / "setup.py").touch()
    assert Protection().root(tmp_path / "mine" / "csrc") == ""
    assert Protection().root(tmp_path) == "it belongs to the system"
