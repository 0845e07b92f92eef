"""The on-demand build: once, into a cache, and with an error that says what to do when it cannot be done.

The builds here run a stand-in for the compiler, so that they take no time; the real one is used by every
other test of the simulated device.
"""

import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import sysconfig
import textwrap
import time
import types
from collections.abc import Callable
from pathlib import Path

import pytest

from torchada.simulator import build

RunPython = Callable[..., "subprocess.CompletedProcess[str]"]
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
        assert sum(name in call.split() for call in compiled) == 1


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
    monkeypatch.setattr(sysconfig, "get_paths", lambda: {"include": str(tmp_path)})
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


def test_a_forked_child_of_a_killed_build_holds_no_lock(tmp_path: Path, run_python: RunPython) -> None:
    """A loader's worker that was forked while another thread built outlives its parent; all three locks are free."""
    locks = f"""
    import contextlib, fcntl, os, signal, sys, threading, time
    from pathlib import Path
    from torchada.ops import build as ops
    from torchada.porting.journal import Journal
    from torchada.simulator import build
    journal = Journal(Path({str(tmp_path)!r}, "journal"))
    files = [Path({str(tmp_path)!r}, name) for name in ("device", "ops")] + [journal.folder / "lock"]
    """
    hold = """
    held = threading.Event()
    def hold():
        with build._locked(files[0]), ops._locked(files[1]), journal._lock(wait=False):
            held.set()
            time.sleep(60)
    threading.Thread(target=hold, daemon=True).start()
    held.wait()
    child = os.fork()
    if child == 0:
        os.closerange(0, 3)
        time.sleep(60)
        os._exit(0)
    print(child, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)
    """
    killed = run_python(textwrap.dedent(locks) + textwrap.dedent(hold), ok=False)
    child = int(killed.stdout)
    take = "for file in files: fcntl.flock(open(file), fcntl.LOCK_EX | fcntl.LOCK_NB)"
    try:
        assert killed.returncode == -signal.SIGKILL
        run_python(textwrap.dedent(locks) + take)
    finally:
        os.kill(child, signal.SIGKILL)


def test_a_user_without_a_home_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Usual in containers: a number of a user that the system does not know, and no HOME."""
    from torchada.ops import build as ops

    def getpwuid(number: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    for name in ("HOME", "XDG_CACHE_HOME", "TORCHADA_SIM_CACHE", "TORCH_EXTENSIONS_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr("pwd.getpwuid", getpwuid)
    with pytest.raises(build.SimulatorBuildError, match="Set TORCHADA_SIM_CACHE to a directory that can be written"):
        build.ensure()
    with pytest.raises(ops.OpsBuildError, match="Set TORCH_EXTENSIONS_DIR to a directory that can be written"):
        ops.cache_dir()
    monkeypatch.setenv("TORCHADA_SIM_CACHE", str(tmp_path))
    assert build.cache_dir() == tmp_path


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


def test_builds_killed_at_any_moment_do_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    """A second process waits meanwhile, as the workers of a test run do; whoever is killed, no third one suffers."""
    seconds = random.Random(5)
    compiler = fake_compiler(tmp_path, "time.sleep(0.03)")
    for _ in range(6):
        children = [start_child(cache, compiler) for _ in range(2)]
        begun = len(calls(tmp_path))
        deadline = time.monotonic() + 60
        while len(calls(tmp_path)) == begun and children[0].poll() is None:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        time.sleep(seconds.uniform(0, 0.3))
        children[0].kill()
        out, err = children[1].communicate(timeout=60)
        assert children[1].returncode == 0, err
        library = Path(out.strip())
        assert library.read_text() == "made"
        assert sorted(path.name for path in library.parent.iterdir()) == ["_MUSAC.so", "lock"]
        children[0].communicate(timeout=60)
        library.unlink()


INTERRUPTED = """
import os, sys
import torchada
real = os.environ.get("TORCHADA_SIM_CACHE")
for error, compiler in ((KeyboardInterrupt, sys.argv[2]), (RuntimeError, "no-such-compiler")):
    os.environ.update(TORCHADA_SIM_CACHE=sys.argv[1], CXX=compiler)
    try:
        import torch
    except error as caught:
        print(type(caught).__name__, "torch" in sys.modules, "torch._C" in sys.modules)
os.environ.pop("TORCHADA_SIM_CACHE")
if real is not None:
    os.environ["TORCHADA_SIM_CACHE"] = real
import torch
print(torchada.is_active(), torch.ones(1).cuda().item())
"""


def test_torch_can_be_imported_after_an_interrupted_build(tmp_path: Path, run_python: RunPython) -> None:
    body = f"""
                with open({str(tmp_path / "pids")!r}, "a") as pids:
                    pids.write(f"{{os.getpid()}} ")
                os.kill(os.getppid(), 2)
                time.sleep(100)"""
    done = run_python(INTERRUPTED, str(tmp_path / "other"), str(fake_compiler(tmp_path, body)))
    assert done.stdout.splitlines() == [
        "KeyboardInterrupt False False",
        "SimulatorBuildError False False",
        "True 1.0",
    ]
    assert "interrupted" in done.stderr
    for pid in (tmp_path / "pids").read_text().split():
        assert not Path("/proc", pid).exists()
    (left,) = (tmp_path / "other").iterdir()
    assert [path.name for path in left.iterdir()] == ["lock"]


def test_progress_on_a_terminal(tmp_path: Path, cache: Path) -> None:
    ours, theirs = os.openpty()
    compiler = fake_compiler(tmp_path, "time.sleep(0.05)")
    env = dict(os.environ, TORCHADA="0", TORCHADA_SIM_CACHE=str(cache), CXX=str(compiler), MAX_JOBS="1")
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, str(ROOT)], env=env, stdout=subprocess.DEVNULL, stderr=theirs
    )
    os.close(theirs)
    text = b""
    with contextlib.suppress(OSError):  # how a terminal says that the other side is gone
        while chunk := os.read(ours, 4096):
            text += chunk
    os.close(ours)
    assert child.wait(60) == 0
    lines = text.decode().split("\r\033[K")
    assert lines[0] == ""
    assert re.fullmatch(rf".*: 0 of {len(SOURCES) + 1} steps, 0 s", lines[1])
    assert f": {len(SOURCES)} of {len(SOURCES) + 1} steps, " in lines[-2]
    assert re.fullmatch(r".*: done in \d+ s\r\n", lines[-1])


def test_the_cache_can_be_moved_and_only_read(tmp_path: Path, run_python: RunPython) -> None:
    """The library that this run uses, copied to another directory, as CI does."""
    library = build.ensure()
    copy = tmp_path / "elsewhere" / library.parent.name / library.name
    copy.parent.mkdir(parents=True)
    shutil.copy(library, copy)
    for path in (copy, copy.parent, copy.parent.parent):
        path.chmod(0o555)
    code = """
    import os, torchada, torch
    assert torch.ones(2, device="cuda").sum().item() == 2
    print([line.split()[-1] for line in open("/proc/self/maps") if "_MUSAC.so" in line][0])
    """
    env = {"TORCHADA_SIM_CACHE": str(tmp_path / "elsewhere"), "CXX": "no-such-compiler"}
    done = run_python(code, env=env)
    assert done.stdout.strip() == str(copy)
    assert done.stderr == ""
    assert [path.name for path in copy.parent.iterdir()] == [copy.name]
    assert str(build.SOURCE_DIR).encode() not in library.read_bytes()


def test_libraries_that_nothing_uses_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    names = {
        "torch-2.9.1-cpython-311-0123456789abcdef": ["_MUSAC.so", "_DIST.so", "lock"],  # unused for long
        "torch-2.9.1-cpython-311-0123456789abcde0": ["_MUSAC.so", "lock"],  # used
        "torch-2.9.1-cpython-311-0123456789abcde1": ["lock", "notes.txt"],  # not only ours
        "torch-2.9.1": ["README"],  # not ours
    }
    for name, files in names.items():
        (cache / name).mkdir(parents=True)
        for file in files:
            (cache / name / file).write_text("")
        if not name.endswith("cde0"):
            os.utime(cache / name, (0, time.time() - build.KEEP_SECONDS - 100))
    library = build.ensure()
    kept = {path.name: sorted(file.name for file in path.iterdir()) for path in cache.iterdir()}
    assert kept == {
        "torch-2.9.1-cpython-311-0123456789abcde0": ["_MUSAC.so", "lock"],
        "torch-2.9.1-cpython-311-0123456789abcde1": ["notes.txt"],
        "torch-2.9.1": ["README"],
        library.parent.name: ["_MUSAC.so", "lock"],
    }


def test_flags_of_the_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    plain = build.library_path()
    monkeypatch.setenv("CXX", str(fake_compiler(tmp_path)))
    monkeypatch.setenv("TORCHADA_SIM_CXXFLAGS", "-fsanitize=address '-DNAME=a b'")
    assert build.ensure() != plain
    assert len(calls(tmp_path)) == len(SOURCES) + 1
    assert all("-fsanitize=address -DNAME=a b" in call for call in calls(tmp_path))
    monkeypatch.setenv("TORCHADA_SIM_CXXFLAGS", "'-DNAME")
    with pytest.raises(build.SimulatorBuildError, match=r"TORCHADA_SIM_CXXFLAGS.*No closing quotation"):
        build.ensure()


@pytest.mark.parametrize(
    ("version", "complaint"),
    [
        ("__version__ = '2.6.1+cpu'", "needs torch 2.7 or later; 2.6.1"),
        ("version = '2.7.1'", "finds no version of torch"),
        (None, "cannot tell the version of torch"),
    ],
)
def test_a_torch_that_does_not_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: str | None, complaint: str
) -> None:
    monkeypatch.setitem(sys.modules, "torch", types.SimpleNamespace(__file__=str(tmp_path / "__init__.py")))  # type: ignore[arg-type]
    if version is not None:
        (tmp_path / "version.py").write_text(version)
    with pytest.raises(build.SimulatorBuildError, match=complaint):
        build.ensure()


def test_what_is_read_from_files_is_what_torch_says() -> None:
    import torch

    found = build.toolchain.find_torch()
    assert found.version == torch.__version__
    assert found.cxx11_abi == torch.compiled_with_cxx11_abi()


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
#include <Python.h>
namespace sim { int device_count(); }  // sim.h says so too, and takes long to compile
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
