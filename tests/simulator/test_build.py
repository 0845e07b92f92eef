"""The on-demand build: once, into a cache, and with an error that says what to do when it cannot be done.

The builds here run a stand-in for the compiler, so that they take no time; the real one is used by every
other test of the simulated device.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import pytest

from torchada.simulator import build

ROOT = Path(__file__).resolve().parent.parent.parent
SOURCES = build.LIBRARIES["_MUSAC"].sources


def fake_compiler(where: Path, body: str = "") -> Path:
    """A program that writes the file after -o and notes each call in `calls`; `body` runs first."""
    script = where / "fake-cxx"
    script.write_text(
        textwrap.dedent(
            f"""\
            #!{sys.executable}
            import sys, time, os
            with open({str(where / "calls")!r}, "a") as calls:
                calls.write(" ".join(sys.argv[1:]) + "\\n")
            {body}
            with open(sys.argv[sys.argv.index("-o") + 1], "w") as out:
                out.write("made")
            """
        )
    )
    script.chmod(0o755)
    return script


def calls(where: Path) -> list[str]:
    log = where / "calls"
    return log.read_text().splitlines() if log.exists() else []


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    where = tmp_path / "cache"
    monkeypatch.setenv("TORCHADA_SIM_CACHE", str(where))
    return where


def test_cache_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCHADA_SIM_CACHE", str(tmp_path / "own"))
    assert build.cache_dir() == tmp_path / "own"
    monkeypatch.delenv("TORCHADA_SIM_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "xdg"))
    assert build.cache_dir() == tmp_path / "xdg" / "torchada" / "simulator"
    monkeypatch.delenv("XDG_CACHE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    assert build.cache_dir() == tmp_path / "home" / ".cache" / "torchada" / "simulator"


def test_path_follows_the_sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    import torch

    real = build.library_path()
    assert f"torch-{torch.__version__}-" in real.parent.name
    copy = tmp_path / "csrc"
    copy.mkdir()
    for source in build.SOURCE_DIR.iterdir():
        if source.is_file():
            (copy / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(build, "SOURCE_DIR", copy)
    assert build.library_path() == real
    with open(copy / "sim.h", "a") as header:
        header.write("// changed\n")
    assert build.library_path() != real


def test_builds_once_and_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    assert not build.is_built()
    assert not cache.exists()  # asking builds and makes nothing
    library = build.ensure()
    assert library.read_text() == "made"
    assert build.is_built()
    assert len(calls(tmp_path)) == len(SOURCES) + 1
    progress = capfd.readouterr().err
    assert re.fullmatch(
        r"torchada: building the simulated MUSA device \(once, about \d+ s\) \.\.\. done in \d+ s\n", progress
    )
    assert sorted(path.name for path in library.parent.iterdir()) == ["_MUSAC.so", "lock"]
    assert build.ensure() == library
    assert len(calls(tmp_path)) == len(SOURCES) + 1
    assert capfd.readouterr().err == ""


def test_every_source_is_compiled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    listed = [name for library in build.LIBRARIES.values() for name in library.sources]
    assert sorted(listed) == sorted(path.name for path in build.SOURCE_DIR.glob("*.cpp"))
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    build.ensure()
    compiled = [call for call in calls(tmp_path) if " -c " in call]
    for name in SOURCES:
        assert sum(name in call for call in compiled) == 1


def test_no_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(build.SimulatorBuildError, match=r"C\+\+ compiler.*clang\+\+.*apt-get install g\+\+"):
        build.ensure()
    assert not build.is_built()


@pytest.mark.parametrize("command", ["no-such-compiler", "/no/such/c++ -O3", '"'])
def test_a_compiler_that_was_asked_for_is_not_replaced(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, command: str
) -> None:
    for name in ("c++", "g++"):
        fake_compiler(tmp_path).rename(tmp_path / name)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("CXX", command)
    with pytest.raises(build.SimulatorBuildError, match=re.escape(f"CXX={command!r} names none")):
        build.ensure()
    assert not build.is_built()


def test_a_relative_cache_directory_is_not_valid(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHADA_SIM_CACHE", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "here")
    assert build.cache_dir() == Path.home() / ".cache" / "torchada" / "simulator"


def test_no_python_headers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    monkeypatch.setattr(build.toolchain.sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
    with pytest.raises(build.SimulatorBuildError, match=r"headers of this Python are missing.*python3-dev"):
        build.ensure()


def test_failing_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    body = 'print("kernels.cpp:1:1: error: this torch is too new", file=sys.stderr); sys.exit(3)'
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path, body)))
    with pytest.raises(build.SimulatorBuildError) as caught:
        build.ensure()
    text = str(caught.value)
    assert "error: this torch is too new" in text
    assert "exit status 3" in text
    assert capfd.readouterr().err.endswith("... failed\n")
    assert [path.name for path in build.library_path().parent.iterdir()] == ["lock"]
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))  # repaired: nothing is in the way
    build.ensure()


def test_cache_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TORCHADA_SIM_CACHE", str(tmp_path / "file"))
    with pytest.raises(build.SimulatorBuildError, match="set TORCHADA_SIM_CACHE"):
        build.ensure()


def test_compiler_of_several_words(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CXX", f"env NOTHING=1 {fake_compiler(tmp_path)}")
    assert build.ensure().read_text() == "made"


CHILD = """
import sys
sys.path.insert(0, sys.argv[1])
from torchada.simulator import build
print(build.ensure(*sys.argv[2:]), flush=True)
assert "torch" not in sys.modules
"""


def start_child(cache: Path, compiler: Path) -> subprocess.Popen[str]:
    env = dict(os.environ, TORCHADA="0", TORCHADA_SIM_CACHE=str(cache), CXX=str(compiler), MAX_JOBS="2")
    return subprocess.Popen(
        [sys.executable, "-c", CHILD, str(ROOT)],
        env=env,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_processes_build_once(tmp_path: Path, cache: Path) -> None:
    compiler = fake_compiler(tmp_path, "time.sleep(0.2)")
    children = [start_child(cache, compiler) for _ in range(3)]
    outputs = [child.communicate(timeout=120) for child in children]
    assert [child.returncode for child in children] == [0, 0, 0], outputs
    assert {output[0].strip() for output in outputs} == {str(build.library_path())}
    assert len(calls(tmp_path)) == len(SOURCES) + 1


def test_killed_build_does_not_block(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    child = start_child(cache, fake_compiler(tmp_path, "time.sleep(3)"))
    deadline = time.monotonic() + 60
    while not calls(tmp_path):
        assert time.monotonic() < deadline, "the child did not start to build"
        time.sleep(0.05)
    child.send_signal(signal.SIGKILL)
    child.communicate(timeout=60)
    assert not build.is_built()
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    library = build.ensure()
    assert sorted(path.name for path in library.parent.iterdir()) == ["_MUSAC.so", "lock"]


def test_nothing_is_built_or_loaded_by_imports(tmp_path: Path) -> None:
    code = f"""
import sys
sys.path.insert(0, {str(ROOT)!r})
import torchada.simulator.build as build
assert "torch" not in sys.modules
import torchada.simulator
assert "torch_musa" not in sys.modules
"""
    env = dict(os.environ, TORCHADA="0", TORCHADA_SIM_CACHE=str(tmp_path / "cache"))
    env.pop("TORCHADA_SIMULATE", None)
    subprocess.run([sys.executable, "-c", code], env=env, check=True, timeout=120)
    assert not (tmp_path / "cache").exists()


OPTIONAL = """
#include "python.h"
static PyObject* devices(PyObject*, PyObject*) { return PyLong_FromLong(sim::device_count()); }
static PyMethodDef functions[] = {{"devices", devices, METH_NOARGS, nullptr}, {}};
static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_EXTRA", nullptr, -1, functions};
PyMODINIT_FUNC PyInit__EXTRA() { return PyModule_Create(&definition); }
"""


@pytest.fixture
def extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An optional library `_EXTRA` beside the real ones, in a copy of csrc."""
    copy = tmp_path / "csrc"
    shutil.copytree(build.SOURCE_DIR, copy)
    (copy / "extra.cpp").write_text(OPTIONAL)
    monkeypatch.setattr(build, "SOURCE_DIR", copy)
    library = build.Library(what="one more", sources=("extra.cpp",), seconds=5)
    monkeypatch.setattr(build, "LIBRARIES", {**build.LIBRARIES, "_EXTRA": library})
    return copy / "extra.cpp"


def test_an_optional_library_has_a_key_of_its_own(extra: Path) -> None:
    main, optional = build.library_path(), build.library_path("_EXTRA")
    extra.write_text(OPTIONAL + "// changed")
    assert build.library_path() == main
    assert build.library_path("_EXTRA") != optional
    extra.write_text(OPTIONAL)
    with open(extra.parent / "fallback.cpp", "a") as source:
        source.write("// changed")
    assert build.library_path() != main
    assert build.library_path("_EXTRA") == optional
    with open(extra.parent / "sim.h", "a") as header:
        header.write("// changed")
    assert build.library_path("_EXTRA") != optional


def test_an_optional_library_needs_the_main_one(
    tmp_path: Path, extra: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    optional = build.ensure("_EXTRA")
    assert optional.name == "_EXTRA.so"
    assert build.is_built()
    assert str(build.library_path()) in calls(tmp_path)[-1].split()
    assert [line.split("(")[0] for line in capfd.readouterr().err.splitlines()] == [
        "torchada: building the simulated MUSA device ",
        "torchada: building one more ",
    ]
    with pytest.raises(KeyError):
        build.ensure("_NONE")


def test_an_optional_library_calls_the_device(extra: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    main = build.load()  # before the copy: the key is the same
    module = build.load("_EXTRA")
    try:
        assert module.__name__ == "torch_musa._EXTRA"
        assert build.load("_EXTRA") is module
        assert module.devices() == main._musa_getDeviceCount() > 0
    finally:
        del sys.modules["torch_musa._EXTRA"]
        shutil.rmtree(build.library_path("_EXTRA").parent)


def test_load_gives_the_module_once() -> None:
    module = build.load()
    assert module.__name__ == "torch_musa._MUSAC"
    assert sys.modules["torch_musa._MUSAC"] is module
    assert build.load() is module
    assert module._musa_version == "40300"
