"""Who is masqueraded: names, folders, rows, and those who ask on behalf of others."""

import sys
import types
from importlib import metadata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from torchada import packages, scope
from torchada.errors import ConfigError
from torchada.packages import checked, mentions_musa, program_names, row_trouble
from torchada.rules import Masquerade
from torchada.scope import MAINS, Scope

ROW = Masquerade("Some-Package", ">=1.2,<2", ("somepackage.gpu", "somepackage.more"), why="w", test="t")


def made(*names, rows=()):
    found = Scope(rows=tuple(rows))
    found.name(names, "a test")
    return found


def module(name, file=None, **more):
    return {"__name__": name} | ({} if file is None else {"__file__": str(file)}) | more


part = st.from_regex(r"[a-z_]\w{0,5}", fullmatch=True)
dotted = st.lists(part, min_size=1, max_size=4).map(".".join)


@given(named=dotted, asking=dotted)
def test_a_name_stands_for_itself_and_all_below(named, asking):
    if {named.partition(".")[0], asking.partition(".")[0]} & {*packages.NEVER, *MAINS}:
        return
    wanted = asking == named or asking.startswith(named + ".")
    found = made(named)
    assert found.decide(module(asking)) is wanted
    assert found.decide(module(asking, "/x.py")) is wanted
    assert found.verdicts[asking] is wanted  # and is not decided again
    assert asking not in made(named).verdicts


@given(st.text(max_size=12))
def test_any_text_is_a_name_or_is_refused(text):
    try:
        name = checked(text)
    except (ConfigError, ValueError):  # ValueError: the system's own, for a null byte
        return
    assert checked(name) == name


@pytest.mark.parametrize("name", ["torch", "torch.nn.modules", "torch_musa", "torchada.scope"])
def test_torch_is_never_masqueraded(name, tmp_path):
    found = made(str(tmp_path))
    assert found.decide(module(name, tmp_path / "torch" / "x.py")) is False
    with pytest.raises(ConfigError, match="always get the true answers"):
        checked(name)


def test_folder(tmp_path):
    for file in ("a.py", "pkg/b.py", "aware.py", "venv/lib/c.py"):
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("'torch_musa'" if "aware" in file else "")
    found = made(str(tmp_path))
    assert found.named == {f"{tmp_path}/": "a test"}
    assert found.decide(module("a", tmp_path / "a.py"))
    assert found.decide(module("pkg.b", tmp_path / "pkg" / "b.py"))
    assert found.decide(module("tests.a", tmp_path / "a.py"))
    assert not found.decide(module("aware", tmp_path / "aware.py"))
    assert not found.decide(module("c", tmp_path / "venv" / "lib" / "c.py"))
    assert not found.decide(module("a", f"{tmp_path}x/a.py"))
    assert not found.decide(module("a"))


def test_main(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("musa = 1")
    spec = types.SimpleNamespace(name="pkg.__main__")
    for main in MAINS:
        assert made(str(script)).decide(module(main, script))  # named, so it may know MUSA
        assert not made(str(tmp_path / "..")).decide(module(main, script))
        assert made("pkg").decide(module(main, "/x/pkg/__main__.py", __spec__=spec))
        assert not made("other").decide(module(main, "/x/pkg/__main__.py", __spec__=spec))
        assert made("__main__").decide(module(main))
        assert not made("pkg").decide(module(main))
    found = made(str(script))
    assert found.decide(module("__main__", script)) and not found.decide(module("__main__", "/pdb.py"))
    assert not found.decide(module("__main__"))
    assert found.verdicts["__main__"] == {str(script): True, "/pdb.py": False, None: False}


@pytest.mark.parametrize("names", [{}, {"__name__": 1}, {"__name__": []}])
def test_code_without_a_name(names):
    assert made("pkg").decide(names) is False
    frame = types.SimpleNamespace(f_globals=names, f_back=None)
    assert made("pkg").asked_by(frame) is False
    assert made("pkg").asked_by(None) is False
    for caller, answer in (("pkg.sub", True), ("other", False)):
        scope_of = {"__name__": caller, "names": names, "found": made("pkg"), "sys": sys}
        asked = "[eval(code, names | {'found': found, 'sys': sys}) for code in ('found.decide(globals())', %r)]"
        assert eval(asked % "found.asked_by(sys._getframe())", scope_of) == [answer, answer]


def test_a_borrowed_name_is_not_remembered_where_the_file_counts(tmp_path):
    found = made("pkg", str(tmp_path))
    assert not found.decide(module("later"))
    assert "later" not in found.verdicts
    assert found.decide(module("later", tmp_path / "later.py"))


def frames(*names):
    """Nested frames of modules with these names; the innermost is the last one."""
    seen = []
    code = "def call(rest, seen, sys):\n    rest[0](rest[1:], seen, sys) if rest else seen.append(sys._getframe())"
    made_functions = []
    for name in names:
        scope_of = {"__name__": name}
        exec(code, scope_of)
        made_functions.append(scope_of["call"])
    made_functions[0](made_functions[1:], seen, sys)
    return seen[0]


def test_printing_a_tensor_is_asked_by_whoever_prints():
    found = made("pkg")
    assert found.asked_by(frames("plain", "pkg", "torch._tensor", "torch._tensor_str"))
    assert found.asked_by(frames("pkg", "torch.nn.parameter", "torch.utils._device", "torch._tensor_str"))
    assert not found.asked_by(frames("pkg", "plain", "torch._tensor", "torch._tensor_str"))
    assert not found.asked_by(frames("pkg", "torch.testing", "torch._tensor", "torch._tensor_str"))
    assert not found.asked_by(frames("torch._tensor_str"))


def test_dynamo_asks_for_the_code_it_traces():
    found = made("pkg")

    def traced(name, asking):
        scope_of = {"__name__": asking}
        exec("def ask(tx, found, sys):\n    return found.asked_by(sys._getframe())", scope_of)
        return scope_of["ask"](types.SimpleNamespace(f_globals={"__name__": name}), found, sys)

    for asking in (*scope.TRACER, scope.CALLER):
        assert traced("pkg.sub", asking) and not traced("plain", asking)
    assert not traced("pkg", "torch._dynamo.guards")


# ---------------------------------------------------------------- rows
@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A package that ROW is about, version 1.5."""
    folder = tmp_path / "somepackage"
    folder.mkdir()
    for file in ("__init__.py", "gpu.py", "other.py"):
        (folder / file).write_text("")
    monkeypatch.syspath_prepend(str(tmp_path))
    version = {"Some-Package": "1.5"}

    def found(name):
        if name not in version:
            raise metadata.PackageNotFoundError(name)
        return version[name]

    monkeypatch.setattr(packages.metadata, "version", found)
    monkeypatch.setattr(packages, "PACKAGES", (ROW,))
    return folder, version


def test_a_row_fits(installed):
    found = made(rows=[ROW])
    assert row_trouble(ROW) == "" and not found.used
    assert found.roots() == {"somepackage"}
    assert found.meet("somepackage") and found.used
    assert not found.meet("somepackage"), "it is new only once"
    assert not found.meet("another")
    assert found.decide(module("somepackage.gpu")) and found.decide(module("somepackage.more.deep"))
    assert not found.decide(module("somepackage")) and not found.decide(module("somepackage.other"))


@pytest.mark.parametrize(("number", "fits"), [("1.2", True), ("1.1", False), ("2.0", False), ("1.9rc1", True)])
def test_versions_of_a_row(installed, number, fits):
    installed[1]["Some-Package"] = number
    assert (row_trouble(ROW) == "") is fits
    assert made(rows=[ROW]).meet("somepackage") is fits


def test_an_unknown_version_is_left_alone(installed):
    installed[1].clear()
    assert row_trouble(ROW) == "the version of Some-Package is not known"


def test_a_package_that_knows_musa_is_left_alone(installed):
    folder, _ = installed
    (folder / "other.py").write_text("import torch_musa")  # not among the modules of the row
    assert row_trouble(ROW) == ""
    (folder / "gpu.py").write_text("if device.type in ('cuda', 'MUSA'): ...")
    assert row_trouble(ROW) == f"it knows MUSA by itself ({folder / 'gpu.py'})"
    found = made(rows=[ROW])
    assert not found.meet("somepackage")
    found.name(["somepackage"], "a test")
    assert found.decide(module("somepackage.gpu", folder / "gpu.py")), "unless it is named"


@pytest.mark.parametrize("word", ["somepackage", "all", " all , somepackage "])
def test_rows_are_turned_off(installed, monkeypatch, word):
    monkeypatch.setenv("TORCHADA_NO_MASQUERADE", word)
    assert row_trouble(ROW) == "turned off by TORCHADA_NO_MASQUERADE"
    monkeypatch.setenv("TORCHADA_NO_MASQUERADE", "nobody")
    with pytest.raises(ConfigError, match=r"no row for nobody; use all, or some of: somepackage"):
        row_trouble(ROW)


def test_doctor_tells_of_rows(installed, monkeypatch):
    monkeypatch.setattr(scope, "SCOPE", made("numpy.random", rows=[ROW]))
    named, row = scope.describe()
    assert named.fits and named.text.startswith("numpy.random: named by a test; compiled, so not covered: ")
    assert row.fits and row.text == "somepackage.gpu, somepackage.more (Some-Package >=1.2,<2): w"
    assert row.fix == "to turn it off: TORCHADA_NO_MASQUERADE=somepackage"
    installed[1]["Some-Package"] = "3"
    row = scope.describe()[1]
    assert not row.fits and row.text == "somepackage: tried with Some-Package >=1.2,<2, not with 3"
    assert row.fix == "to masquerade it all the same: TORCHADA_MASQUERADE=somepackage.gpu,somepackage.more"


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("torch.musa", True),
        ("import torch_musa", True),
        ("MUSA_VISIBLE_DEVICES", True),
        ("'Musa'", True),
        ("a musang", False),
        ("amusant", False),
        ("", False),
    ],
)
def test_mentions_musa(tmp_path, text, found):
    file = tmp_path / "x.py"
    file.write_text(text)
    assert mentions_musa(str(file)) is found
    assert mentions_musa(str(tmp_path / "not there.py")) is False


def test_programs(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("")
    assert program_names([str(script), "-m"]) == [str(script)]
    assert program_names(["-m", "pkg.cli", "x"]) == program_names(["-mpkg.cli"]) == ["pkg"]
    assert program_names(["-c", "0"]) == program_names(["-"]) == program_names([]) == ["__main__"]
    assert program_names(["not there.py"]) == program_names(["-m"]) == []
    with pytest.raises(ConfigError, match=r"--masquerade=train.py -m torch.distributed.run"):
        program_names(["-m", "torch.distributed.run"])
