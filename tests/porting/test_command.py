"""``python -m torchada port``: copies, checks, diffs, in-place porting and its undoing, bad input."""

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.porting.crash import crashes
from torchada.porting import Porter
from torchada.porting.command import main
from torchada.porting.journal import Journal, JournalError
from torchada.porting.tree import walk
from torchada.porting.work import port_files

PORTER = Porter()
KERNEL = (
    b'\xef\xbb\xbf#include <cuda_runtime.h>\r\n#include "own_cuda.h"\r\nvoid f() { cudaFree(0); } // \xff \xe9 cudaFree'
)
PORTED = KERNEL.replace(b"<cuda_runtime.h>", b"<musa_runtime.h>").replace(b"{ cudaFree(0)", b"{ musaFree(0)")


def run(*argv):
    return main("port", [str(arg) for arg in argv])


@pytest.fixture
def project(tmp_path):
    root = tmp_path / "project"
    (root / "csrc").mkdir(parents=True)
    (root / "csrc" / "kernel.cu").write_bytes(KERNEL)
    (root / "csrc" / "own_cuda.h").write_text("int own;\n")
    (root / "native.mu").write_text("cudaMalloc\n")
    (root / "setup.py").write_text("cudaMalloc = 1\n")
    return root


def contents(root):
    return {str(p.relative_to(root)): p.read_bytes() for p in sorted(root.rglob("*")) if p.is_file()}


def test_a_copy_leaves_the_project_alone(project, tmp_path, capsys):
    before, out = contents(project), tmp_path / "out"
    assert run(project, "-o", out) == 0
    assert contents(project) == before
    after = contents(out)
    del after[".torchada-port.json"]
    assert after == {**before, "csrc/kernel.cu": PORTED}
    assert "2 sources, 1 changed (2 changes), 0 places need a person" in capsys.readouterr().out
    times = {p: p.stat().st_mtime_ns for p in out.rglob("*") if p.is_file() and p.name != ".torchada-port.json"}
    assert run(project, "-o", out) == 0
    assert times == {p: p.stat().st_mtime_ns for p in times}, "what is there already is not written again"
    assert run(out, "--check") == 0


def test_a_copy_inside_the_project_is_no_source(project, capsys):
    assert run(project, "-o", project / "out") == 0
    capsys.readouterr()
    assert run(project, "--json") == 0
    told = json.loads(capsys.readouterr().out)
    assert told["skipped"] == [{"path": "out", "why": "a ported copy"}] and told["totals"]["files"] == 2


def test_places_that_hold_no_copy(project, tmp_path, capsys):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "file").touch()
    for out in (tmp_path / "full", project, tmp_path, project / "setup.py"):
        assert run(project, "-o", out) == 1
        assert "choose another folder" in capsys.readouterr().err
    assert run(project, "-o", project / "build" / "musa") == 0
    assert run(project, "-o", project / "build" / "musa") == 0
    assert not (project / "build" / "musa" / "build").exists() or not list((project / "build" / "musa").rglob("musa/*"))


def test_reports_write_nothing(project, capfd):
    before = contents(project)
    (project / "csrc" / "more.cpp").write_text("x\nnvmlInit();\n")
    assert run(project) == 0
    assert "  csrc/more.cpp:2: nvmlInit: " in capfd.readouterr().out
    assert run(project, "--dry-run") == 0
    assert run(project, "--check") == 1
    capfd.readouterr()
    assert run(project, "--json") == 0
    data = json.loads(capfd.readouterr().out)
    assert data["totals"] == {"files": 3, "changed": 1, "changes": 2, "problems": 1, "notes": 0, "errors": 0}
    assert data["files"][0]["changes"][1] == {"line": 3, "old": "cudaFree", "new": "musaFree", "evidence": "multi"}
    assert run(project, "--diff") == 0
    assert "#include <musa_runtime.h>" in capfd.readouterr().out
    (project / "csrc" / "more.cpp").unlink()
    assert contents(project) == before


def test_the_diff_is_one_that_patch_takes(project, tmp_path, capfdbinary):
    assert run(project, "--diff") == 0
    diff = capfdbinary.readouterr().out
    subprocess.run(["git", "apply", "--whitespace=nowarn", "-"], cwd=project, input=diff, check=True, timeout=60)
    assert (project / "csrc" / "kernel.cu").read_bytes() == PORTED


def test_in_place_and_undo(project, capsys):
    before, own = contents(project), (project / "csrc" / "own_cuda.h").stat().st_mtime_ns
    (project / "csrc" / "kernel.cu").chmod(0o640)
    assert run(project, "--in-place") == 0
    assert (project / "csrc" / "kernel.cu").read_bytes() == PORTED
    assert (project / "csrc" / "kernel.cu").stat().st_mode & 0o777 == 0o640
    assert (project / "csrc" / "own_cuda.h").stat().st_mtime_ns == own
    assert run(project, "--in-place") == 0
    assert run(project, "--check") == 0
    assert run(project, "--undo") == 0
    assert contents(project) == before, "the journal is gone too"
    (project / "csrc" / "kernel.cu").write_bytes(PORTED)
    assert run(project, "--in-place") == 0
    assert not (project / ".torchada-port").exists(), "nothing changed: no journal"
    assert run(project, "--undo") == 1
    assert "nothing to undo" in capsys.readouterr().err


def test_undo_never_loses_an_edit(project, capsys):
    kernel = project / "csrc" / "kernel.cu"
    assert run(project, "--in-place") == 0
    kernel.write_bytes(PORTED + b"\nedited")
    assert run(project, "--undo") == 1
    assert "edited after it was ported" in capsys.readouterr().out
    kernel.write_bytes(PORTED + b"\ncudaMalloc")
    assert run(project, "--in-place") == 0
    assert kernel.read_bytes() == PORTED + b"\nmusaMalloc"
    run(project, "--undo")
    assert kernel.read_bytes() == PORTED + b"\ncudaMalloc"
    kernel.write_bytes(PORTED)
    assert run(project, "--undo") == 0
    assert kernel.read_bytes() == KERNEL


def test_links_are_refused_and_their_targets_safe(project, tmp_path, capsys):
    outside = tmp_path / "outside.cu"
    outside.write_text("cudaMalloc")
    (project / "link.cu").symlink_to(outside)
    (project / "loop").symlink_to(project)
    (project / "inside.cu").symlink_to("csrc/kernel.cu")
    os.link(outside, project / "hard.cu")
    assert run(project, "--in-place") == 0
    text = capsys.readouterr().out
    assert all(f"skipped {name}: a link" in text for name in ("link.cu", "loop", "inside.cu"))
    assert outside.read_text() == "cudaMalloc"
    assert (project / "hard.cu").read_text() == "musaMalloc"
    assert run(project, "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / "inside.cu").resolve() == tmp_path / "out" / "csrc" / "kernel.cu"
    assert not (tmp_path / "out" / "link.cu").exists()


def test_folders_that_are_not_the_projects(project, tmp_path):
    for name in ("nested/.git", ".git", "venv", "third/party", "site-packages/x", "skipped"):
        (project / name).mkdir(parents=True)
        (project / name / ".." / "a.cu").resolve().write_text("cudaMalloc")
        (project / name / "b.cu").write_text("cudaMalloc")
    (project / "venv" / "pyvenv.cfg").touch()
    tree = walk(project, f"skipped, {project}/third/party")
    assert {path for path in tree.sources if path.endswith("b.cu")} == set()
    assert {s.path for s in tree.skipped} == {"nested", ".git", "venv", "third/party", "site-packages", "skipped"}
    assert walk(project, str(project)).sources == []
    assert run(project, "-o", tmp_path / "out", "--exclude", "skipped") == 0
    assert (tmp_path / "out" / "skipped" / "b.cu").read_text() == "cudaMalloc"


def test_architectures_of_nvidia_in_build_files_are_told(project, capsys):
    (project / "setup.py").write_text(
        "# sm_80\nenv['TORCH_CUDA_ARCH_LIST'] = '8.0'\nflags = ['-gencode', 'arch=compute_80,code=sm_80', 'sm_90']\n"
    )
    (project / "CMakeLists.txt").write_text("set(CMAKE_CUDA_ARCHITECTURES 80)\n")
    (project / "other.py").write_text("sm_80\n")
    assert run(project, "--check") == 1  # for the kernel
    (project / "csrc" / "kernel.cu").unlink()
    assert run(project, "--check") == 0, "notes"
    lines = [line for line in capsys.readouterr().out.splitlines() if "note: " in line][4:]
    places = [line.split(": note: ")[0].strip() for line in lines]
    assert places == [
        "CMakeLists.txt:1",
        *["setup.py:2"],
        *["setup.py:3"] * 2,
    ]
    assert run(project, "--json") == 0
    assert json.loads(capsys.readouterr().out)["totals"]["files"] == 1


def test_a_vendored_cutlass_gives_way_to_mutlass(project, tmp_path):
    for place in ("third/cutlass/include/cutlass/cutlass.h", "own/cute/tensor.hpp", "mine/cutlass/notes.h"):
        (project / place).parent.mkdir(parents=True)
        (project / place).write_text("cutlass::gemm x;")
    (project / "k.cu").write_text(
        "#include <cutlass/cutlass.h>\n#include <cute/tensor.hpp>\n#include <cutlass/notes.h>\n"
    )
    tree = walk(project)
    assert {s.path for s in tree.skipped} == {"third/cutlass", "own/cute"}
    assert run(project, "-o", tmp_path / "out") == 0
    expected = "#include <mutlass/mutlass.h>\n#include <mute/tensor.hpp>\n#include <cutlass/notes.h>\n"
    assert (tmp_path / "out" / "k.cu").read_text() == expected
    assert (tmp_path / "out" / "own" / "cute" / "tensor.hpp").read_text() == "cutlass::gemm x;"
    assert walk(project / "third" / "cutlass").sources == ["include/cutlass/cutlass.h"], "CUTLASS itself can be ported"


def test_bad_files(project, capsys):
    (project / "binary.cu").write_bytes(b"cudaMalloc\0\1")
    (project / "utf16.cu").write_bytes("cudaMalloc".encode("utf-16"))
    (project / "dir.cu").mkdir()
    os.mkfifo(project / "pipe.cu")
    (project / "empty.cu").touch()
    (project / "only_read.cu").write_text("cudaMalloc")
    (project / "only_read.cu").chmod(0o444)
    assert run(project, "--in-place") == 1
    text = capsys.readouterr().out
    assert "binary.cu: not a text" in text
    assert "utf16.cu: not a text" in text
    assert "only_read.cu: not written: it is read-only" in text
    assert "skipped pipe.cu: no regular file" in text
    assert (project / "csrc" / "kernel.cu").read_bytes() == PORTED


def test_names_that_are_no_utf8(project, tmp_path, capsys):
    name = os.fsdecode(b"k\xff.cu")
    (project / name).write_text("cudaMalloc nvmlInit")
    (project / (name + "link")).symlink_to(name)
    assert run(project, "--in-place") == 0
    assert (project / name).read_text() == "musaMalloc nvmlInit"
    assert "k\ufffd.cu:1: nvmlInit" in capsys.readouterr().out
    assert run(project, "--json") == 0
    assert run(project, "--undo") == 0
    assert run(project, "-o", tmp_path / "out") == 0
    assert (tmp_path / "out" / name).read_text() == "musaMalloc nvmlInit"


def test_a_copy_that_misses_a_file_fails(project, tmp_path, monkeypatch, capsys):
    read = Path.read_bytes

    def refuse(path):
        if path.name == "setup.py" and path.is_relative_to(project):
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert run(project, "-o", tmp_path / "out") == 1
    assert "skipped setup.py: cannot be read: Permission denied" in capsys.readouterr().out
    assert (tmp_path / "out" / "csrc" / "kernel.cu").read_bytes() == PORTED


def test_bad_calls(project, capsys, monkeypatch):
    assert run(project / "missing") == 1
    assert "is no folder" in capsys.readouterr().err
    for bad in (["--rule", "cuda.h=x"], ["--rule", "x"], ["--diff", "--json"], ["--diff", "--check"], ["--ptx", "x"]):
        with pytest.raises(SystemExit) as raised:
            run(project, *bad)
        assert raised.value.code == 2
    monkeypatch.setattr("torchada.porting.protect.Protection.root", lambda guard, root: "it belongs to the system")
    assert run(project, "--in-place") == 1
    assert "not ported in place" in capsys.readouterr().err


def test_an_unreadable_file_is_an_error_for_that_file(project, monkeypatch):
    read = Path.read_bytes

    def refuse(path):
        if path.name == "kernel.cu":
            raise PermissionError(13, "Permission denied", str(path))
        return read(path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    errors = [result.error for result in port_files(project, ["csrc/kernel.cu", "csrc/own_cuda.h"])]
    assert errors == ["cannot be read: Permission denied", ""]


def test_a_full_disk_leaves_the_old_file(project, monkeypatch, capsys):
    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    before = contents(project)
    assert run(project, "--in-place") == 1
    assert "not written: No space left on device" in capsys.readouterr().out
    monkeypatch.undo()
    assert {k: v for k, v in contents(project).items() if not k.startswith(".torchada-port")} == before


def test_a_file_that_cannot_grow_leaves_the_old_one(project):
    """A limit of the kernel's, as a full disk: the write itself fails."""
    (project / "large.cu").write_text("cudaMalloc; " * 2000)
    before = contents(project)
    program = (
        "import resource, sys; resource.setrlimit(resource.RLIMIT_FSIZE, (8192, 8192));"
        "from torchada.porting.command import main; sys.exit(main('port', sys.argv[1:]))"
    )
    command = [sys.executable, "-c", program, str(project), "--in-place"]
    process = subprocess.run(command, capture_output=True, text=True, timeout=120)
    assert process.returncode == 1
    assert "large.cu: not written: File too large" in process.stdout
    assert (project / "csrc" / "kernel.cu").read_bytes() == PORTED
    assert run(project, "--undo") == 0
    assert contents(project) == before


def test_links_that_lead_nowhere(project, tmp_path):
    (project / "one.cu").symlink_to("two.cu")
    (project / "two.cu").symlink_to("one.cu")
    (project / "up").symlink_to("..")
    (project / "gone.cu").symlink_to("missing.cu")
    for i in range(60):
        (project / f"chain{i}.cu").symlink_to(f"chain{i + 1}.cu")
    assert run(project, "--in-place") == 0
    assert run(project, "--undo") == 0
    assert run(project, "-o", tmp_path / "out") == 0


def test_nothing_takes_the_square_of_a_length():
    begin = time.process_time()
    PORTER.port('R"x(' * 75_000, "a.cu")  # minutes each, if it did
    PORTER.port("asm(" * 20_000, "a.cu")
    assert time.process_time() - begin < 60


def test_two_at_once_are_refused(project):
    with Journal(project).locked():
        with pytest.raises(JournalError, match="another process"), Journal(project).locked():
            raise AssertionError("both have it")


def test_a_damaged_journal_is_told(project, capsys):
    assert run(project, "--in-place") == 0
    journal = project / ".torchada-port" / "journal"
    whole = journal.read_text()
    journal.write_text(whole + '{"path": "to')
    assert run(project, "--in-place") == 0
    journal.write_text("{\n" + whole)
    assert run(project, "--undo") == 1
    assert "is damaged" in capsys.readouterr().err
    journal.write_text(whole + '{"path": "to')
    assert run(project, "--undo") == 0
    assert (project / "csrc" / "kernel.cu").read_bytes() == KERNEL


def test_many_processes_give_the_same(project):
    for i in range(6):
        (project / f"k{i}.cu").write_text(f"cudaMalloc; int x{i};")
    paths = walk(project).sources
    assert list(port_files(project, paths, workers=2)) == list(port_files(project, paths, workers=1))


def test_one_very_long_line(tmp_path):
    (tmp_path / "long.cu").write_text("f(cudaFree, x1 + y2, __CUDA_ARCH__ >= 800); " * 20_000)  # 0.9 MB
    begin = time.process_time()
    (result,) = port_files(tmp_path, ["long.cu"])
    assert len(result.changes) == 20_000 * 3
    assert time.process_time() - begin < 20


def test_killed_at_random_moments(tmp_path):
    crashes(tmp_path, rounds=4, files=40, seed=random.randrange(1 << 30))


def test_the_command_is_known():
    process = subprocess.run(
        [sys.executable, "-m", "torchada", "port", "--help"], capture_output=True, text=True, timeout=60
    )
    assert process.returncode == 0
    assert "--in-place" in process.stdout
