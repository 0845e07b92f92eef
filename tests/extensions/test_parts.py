"""Flags, libraries, macros, paths, sources: the parts of building an extension on a MUSA machine."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.utils.cpp_extension as cpp
from hypothesis import given
from hypothesis import strategies as st
from torch_musa.utils import musa_extension

import torchada
from tests.extensions.support import make_toolkit
from torchada import _mapping
from torchada.errors import ConfigError, NotOnMusa, TorchadaError
from torchada.extensions import flags, sources
from torchada.porting import Porter
from torchada.shims import extensions as shims
from torchada.tables import nvcc
from torchada.toolkit import toolkit_home
from torchada.utils import cpp_extension as ours


@pytest.fixture(scope="session")
def toolkit(made_once):
    return made_once("toolkit", make_toolkit)


@pytest.fixture
def home(toolkit, monkeypatch):
    """This process, as one that was started with MUSA_HOME."""
    monkeypatch.setattr(cpp, "CUDA_HOME", str(toolkit))
    monkeypatch.setattr(musa_extension, "MUSA_HOME", str(toolkit))
    return str(toolkit)


# ---------------------------------------------------------------- flags
@pytest.mark.parametrize(
    "before, after",
    [
        (
            "-O2 -g -std=c++17 -Wall -fPIC -I/x -isystem /y -DX=1 -UY",
            "-O2 -g -std=c++17 -Wall -fPIC -I/x -isystem /y -DX=1 -UY",
        ),
        ("-gencode arch=compute_80,code=sm_80 -gencode=arch=compute_90,code=sm_90", ""),
        ("--generate-code=arch=compute_80,code=[sm_80,compute_80] -arch=sm_80 -arch sm_90 -code sm_90", ""),
        ("-arch=mp_22", "--offload-arch=mp_22"),
        ("--offload-arch=mp_31 -x musa -fgpu-rdc", "--offload-arch=mp_31 -x musa -fgpu-rdc"),
        ("--expt-relaxed-constexpr --expt-extended-lambda -extended-lambda", ""),
        ("-Xcompiler -fopenmp -Xcompiler=-Wall,-Wno-sign-compare", "-fopenmp -Wall -Wno-sign-compare"),
        ("--compiler-options '-fPIC'", "-fPIC"),
        ("-Xcompiler -Wl,-rpath,/lib", "-Wl,-rpath,/lib"),
        ("--use_fast_math -use_fast_math", "-ffast-math -ffast-math"),
        ("-rdc=true --relocatable-device-code=false -dc", "-fgpu-rdc -fno-gpu-rdc -fgpu-rdc -c"),
        ("-fmad=false --fmad true", "-ffp-contract=off -ffp-contract=fast"),
        ("-ccbin g++-12 --compiler-bindir=/usr/bin -t 4 --threads=8 -t=2", ""),
        ("-lineinfo -G", "-gline-tables-only -g"),
        ("-Xptxas -O3,-v --ptxas-options=-v -maxrregcount=64", ""),
        ("-Xcudafe --diag_suppress=177 --diag-suppress=20012 -diag-suppress 1", ""),
        (
            "-D__CUDA_NO_HALF_OPERATORS__ -U__CUDA_NO_HALF_CONVERSIONS__",
            "-D__MUSA_NO_HALF_OPERATORS__ -U__MUSA_NO_HALF_CONVERSIONS__",
        ),
        (
            "-DNVJPEG_FOUND -D NVJPEG_FOUND=1 --define-macro=NVJPEG_FOUND=2",
            "-DMTJPEG_FOUND -DMTJPEG_FOUND=1 -DMTJPEG_FOUND=2",
        ),
        ("-DWITH_CUDA -DMY_NVJPEG_FOUND", "-DWITH_CUDA -DMY_NVJPEG_FOUND"),
        ("-lcudart -lcublas -lmine -L/x", "-lmusart -lmublas -lmine -L/x"),
        ("-Werror=cross-execution-space-call -Werror=all-warnings -Werror=return-type", "-Werror -Werror=return-type"),
        ("--std c++17 -std=c++20 --std=c++14", "-std=c++17 -std=c++20 -std=c++14"),
        ("-default-stream=legacy -cudart shared", ""),
        ("-dlink", "-dlink"),
        ("-x cu", ""),
    ],
)
def test_flags_of_nvcc(before, after):
    assert flags.mcc_flags(before.replace("'", "").split()) == after.split()


@pytest.mark.parametrize(
    "given, named",
    [
        (["--ptx"], "--ptx"),
        (["-cubin"], "-cubin"),
        (["-default-stream", "per-thread"], "-default-stream per-thread"),
        (["--default-stream=per-thread"], "per-thread"),
        (["-lnvToolsExt"], "nvToolsExt"),
    ],
)
def test_flags_that_ask_for_what_musa_lacks(given, named):
    with pytest.raises(NotOnMusa, match=named) as refused:
        flags.mcc_flags(given)
    assert refused.value.instead


def test_what_a_flag_loses_is_told_once(capsys, monkeypatch):
    monkeypatch.setattr(flags, "_told", set())
    flags.mcc_flags(["-maxrregcount", "64", "--expt-relaxed-constexpr"])
    flags.mcc_flags(["-maxrregcount=32"])
    told = capsys.readouterr().err
    assert told.count("-maxrregcount") == 1 and "__launch_bounds__" in told and "expt" not in told


def test_rows_of_flags_are_whole():
    spellings = [spelling for spellings in nvcc.FLAGS for spelling in spellings.split()]
    assert len(spellings) == len(set(spellings))
    for takes, new, why, *lost in nvcc.FLAGS.values():
        assert isinstance(takes, bool) and why and lost in ([], [True])
        assert new is None or isinstance(new, (str, dict))
        assert takes or "{}" not in str(new)


WORDS = st.sampled_from(
    [
        "-O3",
        "-Xcompiler -Wall",
        "-gencode arch=x",
        "-arch=sm_80",
        "--use_fast_math",
        "-DNVJPEG_FOUND",
        "-rdc=true",
        "-lcudart",
    ]
)


@given(st.lists(WORDS))
def test_flags_are_translated_once(words):
    once = flags.mcc_flags(" ".join(words).split())
    assert flags.mcc_flags(once) == once


# ---------------------------------------------------------------- libraries
def test_libraries(tmp_path):
    given = [
        "cudart",
        "cublas",
        "cublasLt",
        "nccl",
        "nvjpeg",
        "cudnn",
        "curand",
        "cusparse",
        "cusolver",
        "cufft",
        "cuda",
    ]
    made = [
        "musart",
        "mublas",
        "mublasLt",
        "mccl",
        "mtjpeg",
        "mudnn",
        "murand",
        "musparse",
        "musolver",
        "mufft",
        "musa",
    ]
    assert flags.libraries([*given, "mine", "c10", "c10_cuda", "torch_cuda"]) == [*made, "mine", "c10"]
    for name in ("nvToolsExt", "cufile", "nppig", "nvidia-ml"):
        with pytest.raises(NotOnMusa, match=name):
            flags.libraries([name])
    (tmp_path / "libcufile.so").touch()
    assert flags.libraries(["cufile"], [str(tmp_path)]) == ["cufile"]  # a library of the program's own
    assert flags.link_flags(["-Wl,-O1", "-lcuda", "-lnccl", f"-L{tmp_path}", "-lcufile", "x.o"]) == [
        "-Wl,-O1",
        "-lmusa",
        "-lmccl",
        f"-L{tmp_path}",
        "-lcufile",
        "x.o",
    ]


# ---------------------------------------------------------------- torch's functions
def test_they_are_torchs_own():
    assert ours.CUDAExtension is cpp.CUDAExtension and ours.load is cpp.load and ours.include_paths is cpp.include_paths
    assert ours.BuildExtension is cpp.BuildExtension and ours.IS_HIP_EXTENSION is False and ours.ROCM_HOME is None
    assert "COMMON_NVCC_FLAGS" in dir(ours) and ours.COMMON_NVCC_FLAGS is cpp.COMMON_NVCC_FLAGS
    with pytest.raises(AttributeError, match=r"torchada\.utils\.cpp_extension.*no_such"):
        ours.no_such


def test_homes(run_python, tmp_path):
    code = "import torch.utils.cpp_extension as c, torchada; print(c.CUDA_HOME, c.CUDNN_HOME, torchada.CUDA_HOME)"
    code += "; from torchada.utils.cpp_extension import CUDA_HOME as h; print(h)"
    env = {"MUSA_HOME": str(tmp_path), "MUDNN_HOME": "/dnn", "CUDA_HOME": "/cuda"}
    told = run_python("import torchada\n" + code, env=env).stdout.split()
    assert told == [str(tmp_path), "/dnn", str(tmp_path), str(tmp_path)]


def test_where_the_toolkit_is_looked_for(tmp_path, monkeypatch):
    for name in ("MUSA_HOME", "MUSA_PATH", "CUDA_HOME", "CUDA_PATH"):
        monkeypatch.delenv(name, raising=False)
    mcc = tmp_path / "kit" / "bin" / "mcc"
    mcc.parent.mkdir(parents=True)
    mcc.touch(0o755)
    monkeypatch.setenv("PATH", str(mcc.parent))
    assert toolkit_home() == str(tmp_path / "kit")
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))  # NVIDIA's
    assert toolkit_home() in (None, "/usr/local/musa", "/opt/musa")
    monkeypatch.setenv("CUDA_HOME", str(tmp_path / "kit"))
    assert toolkit_home() == str(tmp_path / "kit")
    monkeypatch.setenv("MUSA_PATH", "/b")
    assert toolkit_home() == "/b"
    monkeypatch.setenv("MUSA_HOME", "/a")
    assert toolkit_home() == "/a"


def test_paths(home):
    lib = os.path.join(os.path.dirname(torch.__file__), "lib")
    include = os.path.join(os.path.dirname(torch.__file__), "include")
    cpu = [include, os.path.join(include, "torch", "csrc", "api", "include")]
    for found in (
        cpp.include_paths(),
        cpp.include_paths("cpu"),
        cpp.include_paths(cuda=False),
        cpp.include_paths(False),
    ):
        assert found == cpu
    device = [*cpu, f"{home}/include", ours.stable_compat_include_dir()]
    for found in (
        cpp.include_paths("cuda"),
        cpp.include_paths(device_type="cuda"),
        cpp.include_paths(True),
        cpp.include_paths(cuda=True),
        cpp.include_paths("musa"),
    ):
        assert found == device
    assert cpp.include_paths("cuda", torch_include_dirs=False) == device[2:]
    assert cpp.include_paths("cpu", False) == []
    assert cpp.library_paths() == cpp.library_paths("cpu") == [lib]
    assert cpp.library_paths("cuda") == cpp.library_paths(True) == cpp.library_paths(cuda=True) == [lib, f"{home}/lib"]
    assert cpp.library_paths("cuda", torch_include_dirs=False) == [f"{home}/lib"]
    with pytest.raises(TorchadaError, match="cross_target_platform"):
        cpp.library_paths("cuda", cross_target_platform="windows")


def test_suffixes():
    assert all(cpp._is_cuda_file(name) for name in ("a.cu", "a.cuh", "a.mu", "a.muh"))
    assert not any(cpp._is_cuda_file(name) for name in ("a.cpp", "a.cu.in", "mu", "a.hip"))


def test_architectures(monkeypatch, capsys):
    monkeypatch.setattr(flags, "_told", set())
    monkeypatch.setenv("TORCH_MUSA_ARCH_LIST", "2.2;mp_31")
    assert cpp._get_cuda_arch_flags() == ["--offload-arch=mp_22", "--offload-arch=mp_31"]
    assert cpp._get_cuda_arch_flags(["-O2", "-gencode=arch=compute_80,code=sm_80"]) == [
        "--offload-arch=mp_22",
        "--offload-arch=mp_31",
    ]
    assert cpp._get_cuda_arch_flags(["--offload-arch=mp_31"]) == []
    monkeypatch.delenv("TORCH_MUSA_ARCH_LIST")
    monkeypatch.setenv("TORCH_CUDA_ARCH_LIST", "8.0+PTX")
    assert cpp._get_cuda_arch_flags() == ["--offload-arch=mp_31"]
    assert "TORCH_MUSA_ARCH_LIST" in capsys.readouterr().err


def test_cuda_extension(home):
    made = cpp.CUDAExtension(
        "p.x",
        ["a.cpp", "b.cu"],
        libraries=["nvjpeg", "mine"],
        define_macros=[("NVJPEG_FOUND", "1"), ("WITH_CUDA", None)],
        undef_macros=["NVJPEG_FOUND"],
        extra_compile_args={"nvcc": ["-O3"], "mcc": ["-g"], "cxx": ["-O1"]},
        extra_link_args=["-lcuda"],
        dlink_libraries=["rdc"],
    )
    assert made.libraries == ["mtjpeg", "mine", "c10", "torch", "torch_cpu", "torch_python", "musart"]
    assert made.define_macros == [("MTJPEG_FOUND", "1"), ("WITH_CUDA", None)] and made.undef_macros == ["MTJPEG_FOUND"]
    assert made.extra_compile_args["nvcc"] == ["-O3", "-g"] and "mcc" not in made.extra_compile_args
    assert "-dlink" in made.extra_compile_args["nvcc_dlink"] and "-lrdc" in made.extra_compile_args["nvcc_dlink"]
    assert made.extra_link_args == ["-lmusa"] and f"{home}/include" in made.include_dirs and made.language == "c++"
    limited = cpp.CUDAExtension("y", ["b.cu"], py_limited_api=True)
    assert limited.libraries == ["c10", "torch", "torch_cpu", "musart"] and limited.py_limited_api
    listed = cpp.CUDAExtension("z", ["b.cu"], extra_compile_args=["-O2"])
    assert listed.extra_compile_args == ["-O2"]
    plain = cpp.CppExtension("c", ["a.cpp"])
    assert f"{home}/include" not in plain.include_dirs and "musart" not in plain.libraries
    with pytest.raises(NotOnMusa, match="nvToolsExt"):
        cpp.CUDAExtension("w", ["b.cu"], libraries=["nvToolsExt"])


def test_flags_removed_from_torchs_list_are_removed_from_the_vendors(monkeypatch):
    monkeypatch.setattr(
        musa_extension, "COMMON_MCC_FLAGS", ["-D__MUSA_NO_HALF_OPERATORS__", "-D__MUSA_NO_HALF2_OPERATORS__", "-mtgpu"]
    )
    monkeypatch.setattr(cpp, "COMMON_NVCC_FLAGS", ["-D__CUDA_NO_HALF2_OPERATORS__"])
    assert shims._compile_words(["-O2"]) == ["-x", "musa", "-O2", "-D__MUSA_NO_HALF2_OPERATORS__", "-mtgpu"]
    assert shims._compile_words(["-x", "musa"])[:2] == ["-x", "musa"]


@pytest.mark.parametrize("home, named", [(None, "MUSA_HOME"), ("/no/such/toolkit", "/no/such/toolkit/bin/mcc")])
def test_a_toolkit_that_is_not_there(monkeypatch, home, named):
    monkeypatch.setattr(cpp, "CUDA_HOME", home)
    for asked in (
        lambda: cpp.CUDAExtension("x", ["k.cu"]),
        lambda: cpp.include_paths("cuda"),
        lambda: cpp.load("x", ["k.cu"]),
        lambda: cpp._join_cuda_home("bin", "nvcc"),
        lambda: cpp._check_cuda_version("g++", None),
    ):
        with pytest.raises(OSError, match="MUSA_HOME") as missing:
            asked()
        assert named in str(missing.value) and isinstance(missing.value, RuntimeError)
    assert cpp.CppExtension("x", ["a.cpp"]).sources == ["a.cpp"]


def test_inert_elsewhere(run_python):
    """Where torchada is off, every object is as torch made it."""
    code = """
        import torch.utils.cpp_extension as c
        before = {n: (v, getattr(v, "__code__", None)) for n, v in vars(c).items()}
        import torchada.utils.cpp_extension as ours
        assert all(vars(c)[n] is v and getattr(v, "__code__", None) is code for n, (v, code) in before.items())
        assert ours.load is c.load and not hasattr(c.BuildExtension, "get_mapping_rule"), "touched"
        c.CUDA_HOME = None  # whatever this machine has
        try:
            c.CUDAExtension("x", ["k.cu"])
        except OSError as error:
            print(str(error)[:9])
    """
    assert run_python(code, env={"TORCHADA_PLATFORM": "cpu", "TORCHADA_SIMULATE": None}).stdout.strip() == "CUDA_HOME"


def test_undone(run_python, toolkit):
    code = """
        import torch.utils.cpp_extension as c
        home, codes = c.CUDA_HOME, {n: v.__code__ for n, v in vars(c).items() if hasattr(v, "__code__")}
        build = c.BuildExtension.build_extensions.__code__
        import torchada
        assert torchada.is_active() and c._jit_compile.__code__ is not codes["_jit_compile"]
        assert c.CUDA_HOME not in (None, home)
        torchada.deactivate()
        assert all(vars(c)[n].__code__ is code for n, code in codes.items()), "left"
        assert c.BuildExtension.build_extensions.__code__ is build and not hasattr(c.BuildExtension, "get_mapping_rule")
        print(c.CUDA_HOME == home)
    """
    assert run_python(code, env={"MUSA_HOME": str(toolkit)}).stdout.strip() == "True"


# ---------------------------------------------------------------- sources
@pytest.fixture
def project(tmp_path, monkeypatch):
    root = tmp_path / "project"
    monkeypatch.chdir(tmp_path)
    root.mkdir()
    monkeypatch.chdir(root)
    return root


def put(root, **texts):
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_cu", ".cu").replace("_h", ".h")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


CUDA = "cudaError_t f(cudaStream_t s);\n"
MUSA = CUDA.replace("cuda", "musa")


def port(root, files, include=(), how="in-place", **more):
    return sources.port(files, include, str(root), str(root / "build"), how=how, **more)


def test_only_what_is_reached_is_ported(project, monkeypatch):
    monkeypatch.setenv("TORCHADA_EXCLUDE_DIRS", "theirs")
    put(
        project,
        k_cu='#include "a_b.h"\n#include <inc.h>\n#include NAMED\n' + CUDA,
        other_cu=CUDA,
        inc__inc_h='#define NAMED "named.h"\n#include "theirs/x.h"\n#include "sub/y.h"\n' + CUDA,
        inc__named_h=CUDA,
        inc__unused_h=CUDA,
        inc__theirs__x_h=CUDA,
        inc__sub__y_h=CUDA,
        inc__sub____git="",
    )
    (project / "inc/sub/.git").mkdir()
    (project / "a_b.h").write_text(CUDA)
    port(project, ["k.cu"], ["inc"])
    ported = {
        str(p.relative_to(project)) for p in project.rglob("*.*") if p.is_file() and "musaError_t" in p.read_text()
    }
    assert {name for name in ported if not name.startswith("build")} == {"k.cu", "a_b.h", "inc/inc.h", "inc/named.h"}
    assert (project / "k.cu").read_text().startswith('#include "a_b.h"\n#include <inc.h>\n#include NAMED\n')


def test_links_are_refused_before_anything_is_written(project, tmp_path):
    put(project, k_cu=CUDA)
    (tmp_path / "real.cu").write_text(CUDA)
    (project / "linked.cu").symlink_to(tmp_path / "real.cu")
    with pytest.raises(sources.PortingError, match=r"linked\.cu is a link.*TORCHADA_PORT=copy"):
        port(project, ["k.cu", "linked.cu"])
    put(project, h__real_h=CUDA)
    (project / "link.h").symlink_to(project / "h/real.h")
    (project / "u.cu").write_text('#include "link.h"\n' + CUDA)
    with pytest.raises(sources.PortingError, match=r"link\.h is reached through a link.*TORCHADA_PORT=copy"):
        port(project, ["k.cu", "u.cu"])
    assert (project / "k.cu").read_text() == CUDA == (tmp_path / "real.cu").read_text()
    assert not (project / "build").exists()
    made = port(project, ["k.cu", "linked.cu", "u.cu"], how="copy")
    assert [Path(name).read_text().endswith(MUSA) for name in made.sources] == [True] * 3
    assert (tmp_path / "real.cu").read_text() == CUDA


def test_sources_outside_the_project_are_copied(project, tmp_path, capsys):
    (tmp_path / "csrc").mkdir()
    (tmp_path / "csrc/k.cu").write_text('#include "k.h"\n' + CUDA)
    (tmp_path / "csrc/k.h").write_text(CUDA)
    made = port(project, ["../csrc/k.cu"])
    assert "outside" in capsys.readouterr().out and (tmp_path / "csrc/k.cu").read_text().endswith(CUDA)
    (source,) = made.sources
    assert Path(source).read_text() == '#include "k.h"\n' + MUSA and made.last == [str(tmp_path / "csrc")]
    assert Path(source).with_name("k.h").read_text() == MUSA
    stamp = os.stat(source).st_mtime_ns
    port(project, ["../csrc/k.cu"])
    assert os.stat(source).st_mtime_ns == stamp


@pytest.mark.parametrize("how", ["in-place", "copy"])
def test_a_vendored_cutlass_is_left_alone(project, how):
    """Also one in a folder of the project's own headers, which are ported."""
    put(project, k_cu='#include "cutlass/cutlass.h"\n#include "own.h"\n' + CUDA)
    put(project, src__include__cutlass__cutlass_h=CUDA, src__include__own_h='#include "util/u.h"\n' + CUDA)
    put(project, third__cutlass__include__cutlass__cutlass_h=CUDA, third__cutlass__tools__util__util__u_h=CUDA)
    (source,) = port(project, ["k.cu"], ["src/include", "third/cutlass/tools/util"], how=how).sources
    assert Path(source).read_text() == '#include "mutlass/mutlass.h"\n#include "own.h"\n' + MUSA
    place = Path(source).parent
    assert (place / "src/include/own.h").read_text() == '#include "util/u.h"\n' + MUSA
    for theirs in ("src/include/cutlass/cutlass.h", "third/cutlass/tools/util/util/u.h"):
        assert (project / theirs).read_text() == CUDA
        assert how == "in-place" or not (place / theirs).exists()


def test_builds_side_by_side(project, monkeypatch, capsys):
    """Another build ports the files after this one has read them."""
    put(project, k_cu=CUDA)
    results = sources._results

    def slow(*args):
        found = results(*args)
        monkeypatch.setattr(sources, "_results", results)
        port(project, ["k.cu"])
        return found

    monkeypatch.setattr(sources, "_results", slow)
    assert port(project, ["k.cu"]).sources == ["k.cu"] and (project / "k.cu").read_text() == MUSA
    (project / "sub dir").mkdir()
    put(project / "sub dir", k_cu=CUDA)
    port(project / "sub dir", ["sub dir/k.cu"])
    assert f"port '{project}/sub dir' --undo" in capsys.readouterr().out


def test_a_copy_in_a_relative_build_folder_is_found_from_anywhere(project):
    put(project, k_cu=CUDA, inc__own_h=CUDA)
    (project / "k.cu").write_text("#include <own.h>\n" + CUDA)
    made = sources.port(["k.cu"], ["inc"], str(project), "build/temp", how="copy")
    assert made.first == [f"{project}/build/temp/torchada-ported{project}/inc"]
    assert Path(made.first[0], "own.h").read_text() == MUSA


def test_files_that_cannot_be_ported(project, monkeypatch):
    put(project, k_cu=CUDA)
    with pytest.raises(FileNotFoundError, match=r"missing\.cu"):
        port(project, ["missing.cu"])
    (project / "binary.cu").write_bytes(b"\0\1cudaMalloc")
    with pytest.raises(sources.PortingError, match=r"binary\.cu: not a text"):
        port(project, ["k.cu", "binary.cu"])
    (project / "k.cu").chmod(0o444)
    with pytest.raises(sources.PortingError, match=r"k\.cu is read-only.*TORCHADA_PORT=copy"):
        port(project, ["k.cu"])
    assert (project / "k.cu").read_text() == CUDA
    assert port(project, ["k.cu"], how="off").sources == ["k.cu"]
    for name, asked in (("TORCHADA_PORT", sources.way), ("TORCHADA_PORT_PTX", sources.ptx)):
        monkeypatch.setenv(name, "maybe")
        with pytest.raises(ConfigError, match=rf"{name}='maybe'"):
            asked()
    monkeypatch.setenv("TORCHADA_PORT", "COPY")
    assert sources.way() == "copy"


def test_what_needs_a_person_is_told(project, capsys, monkeypatch):
    put(project, k_cu='void f() { nvmlInit(); }\n__device__ void g() { asm volatile("trap;"); }\n')
    monkeypatch.setenv("TORCHADA_PORT_PTX", "stub")
    port(project, ["k.cu"])
    told = capsys.readouterr().out
    assert "k.cu:1: nvmlInit" in told and "static_assert" not in (project / "k.cu").read_text()


def test_own_rules(project, monkeypatch):
    class Command:
        get_mapping_rule = shims.get_mapping_rule

    assert shims._own_rules(Command()) == {}

    class Own(Command):
        def get_mapping_rule(self):
            return {**super().get_mapping_rule(), "cudaMalloc": "myMalloc", "mine": "yours"}

    assert shims._own_rules(Own()) == {"cudaMalloc": "myMalloc", "mine": "yours"}
    put(project, k_cu="int x = mine + cudaMalloc + cudaFree + undermined;\n")
    port(project, ["k.cu"], rules=shims._own_rules(Own()))
    assert (project / "k.cu").read_text() == "int x = yours + myMalloc + musaFree + undermined;\n"

    class Wrong(Command):
        def get_mapping_rule(self):
            return {"a.h": "b.h"}

    with pytest.raises(TorchadaError, match=r"Wrong maps 'a\.h'"):
        shims._own_rules(Wrong())


# ---------------------------------------------------------------- headers
GIVES_WAY = """
#include <torch/headeronly/core/Dispatch.h>
#include <torch/csrc/stable/macros.h>
#include <torch/csrc/stable/device.h>
#include <cuda_runtime.h>
"""


@pytest.mark.parametrize("first", [True, False], ids=["first", "last"])
def test_headers_give_way_to_those_of_others(tmp_path, first):
    """Where torch, or a toolkit, has a header of this name, that one is read wherever the folders stand."""
    theirs = tmp_path / "include"
    for number, line in enumerate(GIVES_WAY.split()[1::2]):
        path = theirs / line.strip("<>")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"int theirs_{number};\n")
    (tmp_path / "x.cpp").write_text(GIVES_WAY)
    folders = [ours.stable_compat_include_dir(), str(theirs)]
    command = ["c++", "-E", "-P", *(f"-I{path}" for path in (folders if first else folders[::-1])), "x.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert done.stdout.split() == [word for n in range(4) for word in ("int", f"theirs_{n};")], done.stderr


def test_headers_that_nobody_else_has(tmp_path, toolkit):
    (tmp_path / "x.cpp").write_text(
        "#include <cuda_runtime.h>\n#include <torch/headeronly/util/HeaderOnlyArrayRef.h>\n"
    )
    includes = [f"-I{ours.stable_compat_include_dir()}", f"-I{toolkit}/include"]
    command = ["c++", "-std=c++17", "-E", *includes, "x.cpp"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert "musaError_t" in done.stdout and "class HeaderOnlyArrayRef" in done.stdout, done.stderr
    assert Path(ours.stable_compat_box_header()).parent == Path(ours.stable_compat_include_dir())


# ---------------------------------------------------------------- names
def test_mapping():
    rule = _mapping._MAPPING_RULE
    assert rule["cudaMalloc"] == "musaMalloc" and rule["cuda_runtime.h"] == "musa_runtime.h" and len(rule) > 1500
    assert all(isinstance(new, str) and new != old for old, new in rule.items())
    assert _mapping.EXT_REPLACED_MAPPING == {"cu": "cu", "cuh": "cuh"}
    porter = Porter()
    names = [old for old in rule if old.isidentifier()][::17]
    assert [porter.port(f"f({old});").text for old in names if old.startswith("cuda")] == [
        f"f({rule[old]});" for old in names if old.startswith("cuda")
    ]
    assert torchada.cuda_to_musa_name("cudaMalloc") == rule["cudaMalloc"]


def test_the_vendors_own_build(toolkit, tmp_path):
    """On the simulated device, torch_musa's BuildExtension and MUSAExtension build MUSA sources with the toolkit."""
    (tmp_path / "k.mu").write_text(
        "#include <musa_runtime.h>\n__global__ void k(int *x) { *x = 7; }\n"
        'extern "C" int run() { int x; k<<<1, 1>>>(&x); return x; }\n'
    )
    (tmp_path / "setup.py").write_text(
        "import torchada.simulator; torchada.simulator.install()\n"
        "import torch; from setuptools import setup; from torch_musa.utils import BuildExtension, MUSAExtension\n"
        "setup(name='v', ext_modules=[MUSAExtension('v', ['k.mu'], extra_compile_args={'mcc': ['-O1'], 'cxx': []})],\n"
        "      cmdclass={'build_ext': BuildExtension.with_options(no_python_abi_suffix=True)})\n"
    )
    env = {**os.environ, "TORCHADA": "0", "MUSA_HOME": str(toolkit), "LD_LIBRARY_PATH": f"{toolkit}/lib"}
    env["PYTHONPATH"] = str(Path(torchada.__file__).parents[1])
    command = [sys.executable, "setup.py", "build_ext", "--inplace"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert (tmp_path / "v.so").exists()
