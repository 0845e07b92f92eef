"""``PYTHONPATH=<checkout>/sitecustomize``: for places where nothing can be installed."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.activation.support import ROOT, VIA, Environment

OURS = str(ROOT / "sitecustomize")
PACKAGED = str(ROOT / "torchada" / "_site")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    """An environment in which torchada is not installed."""
    return Environment(tmp_path_factory.mktemp("bare") / "environment")


def path(*entries: object) -> dict[str, str]:
    return {"PYTHONPATH": os.pathsep.join(map(str, entries))}


def other(folder: Path, text: str) -> Path:
    folder.mkdir()
    (folder / "sitecustomize.py").write_text(text)
    return folder


@pytest.mark.parametrize("entry", [OURS, PACKAGED])
def test_switches_on(bare: Environment, entry: str) -> None:
    assert bare.via() == "off"
    assert bare.via(env=path(entry)) == "sitecustomize"
    code = f"import subprocess, sys; print(subprocess.check_output([sys.executable, '-c', {VIA!r}], text=True))"
    assert bare.run("-c", code, env=path(entry)).lines()[0] == "sitecustomize"


def test_relative_entry(bare: Environment) -> None:
    assert bare.via(env=path("sitecustomize"), cwd=ROOT) == "sitecustomize"


def test_uses_the_copy_it_belongs_to(bare: Environment, dormant: Environment) -> None:
    code = "import torchada, torchada.errors; print(torchada.__file__, torchada.errors.__file__)"
    expected = [f"{ROOT}/torchada/__init__.py {ROOT}/torchada/errors.py"]
    assert bare.run("-c", code, env=path(OURS)).lines() == expected
    assert dormant.run("-c", code, env=path(OURS)).lines() == expected


def test_module_search_path_is_that_of_python(bare: Environment, tmp_path: Path) -> None:
    code = "import sys; print(sys.path)"
    plain = bare.run("-c", code, env=path(PACKAGED, tmp_path)).lines()
    assert bare.run("-S", "-c", code, env=path(PACKAGED, tmp_path)).lines() != plain
    assert bare.run("-c", code, env=path(OURS, tmp_path)).lines() == plain
    assert str(ROOT) not in eval(plain[0])


@pytest.mark.parametrize("entry", [OURS, PACKAGED])
@pytest.mark.parametrize("order", ["before", "after"])
def test_hands_over_to_a_shadowed_one(bare: Environment, tmp_path: Path, entry: str, order: str) -> None:
    folder = other(tmp_path / "other", "import sys\nprint('theirs', __name__, __file__)\nVALUE = 1\n")
    entries = (entry, folder) if order == "after" else (folder, entry)
    result = bare.run("-c", f"import sitecustomize; print(sitecustomize.VALUE); {VIA}", env=path(*entries))
    expected_via = "sitecustomize" if order == "after" else "off"  # theirs first: then theirs decides
    assert result.lines() == [f"theirs sitecustomize {folder}/sitecustomize.py", "1", expected_via]
    assert result.stderr == ""


def test_both_of_ours_and_a_shadowed_one(bare: Environment, tmp_path: Path) -> None:
    folder = other(tmp_path / "other", "print('theirs')")
    for entries in ((OURS, PACKAGED, folder), (PACKAGED, OURS, folder), (OURS, OURS, folder)):
        result = bare.run("-c", VIA, env=path(*entries))
        assert (result.lines(), result.stderr) == (["theirs", "sitecustomize"], "")


def test_a_shadowed_one_that_fails(bare: Environment, tmp_path: Path) -> None:
    """Python says the same as without torchada, and starts."""
    folder = other(tmp_path / "other", "import absent_module")
    plain = bare.run("-c", "print('started')", env=path(folder))
    ours = bare.run("-c", f"print('started'); {VIA}", env=path(OURS, folder))
    assert ours.lines() == [*plain.lines(), "sitecustomize"]
    assert ours.stderr == plain.stderr != ""


def test_none_shadowed(bare: Environment) -> None:
    result = bare.run("-c", "import sitecustomize; print(sitecustomize.__file__)", env=path(OURS))
    assert (result.lines(), result.stderr) == ([f"{PACKAGED}/sitecustomize.py"], "")


def test_wrong_word(bare: Environment) -> None:
    result = bare.run("-c", "print('started')", env=path(OURS) | {"TORCHADA": "perhaps"})
    assert result.lines() == ["started"]
    (line,) = result.stderr.splitlines()
    assert line.startswith("torchada: not active: ") and "TORCHADA='perhaps'" in line
