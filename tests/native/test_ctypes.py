"""ctypes: MUSA's C libraries answer CUDA's function names, and are found where CUDA's are asked for."""

import copy
import ctypes
import ctypes.util
import os
import subprocess
from pathlib import Path

import pytest
import torch

import torchada

BRINGS_CUDA = torch.version.cuda is not None  # NVIDIA's libraries are loaded with such a torch
SOURCE = """
int musaRuntimeGetVersion(int *v) { *v = 40300; return 0; }
int musaGetDeviceCount(int *n) { *n = 3; return 0; }
const char *musaGetErrorString(int e) { return e ? "bad" : "no error"; }
int mcclGetVersion(int *v) { *v = 21105; return 0; }
int mcclCommMuDevice(void *c, int *d) { *d = 7; return 0; }
int mublasCreate_v2(void **h) { *h = 0; return 0; }
int murandGetVersion(int *v) { *v = 1; return 0; }
int muDriverGetVersion(int *v) { *v = 5; return 0; }
int cudaOwnName(void) { return 11; }
int musaOwnName(void) { return 12; }
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A directory with small libraries of MUSA's (and other) names."""
    base = tmp_path_factory.mktemp("libraries")
    (base / "source.c").write_text(SOURCE)
    first = base / "libmusart.so"
    compiler = os.environ.get("CC", "cc")
    command = [compiler, "-shared", "-fPIC", "-Wl,-soname,libmusart.so", base / "source.c", "-o", first]
    subprocess.run(command, check=True, timeout=60)
    for name in (
        "libmccl.so.2",
        "libmublas.so",
        "libmurand.so.1",
        "libmusa.so.1",
        "libmusart-0a1b2c3d.so.4",
        "libother.so",
    ):
        (base / name).write_bytes(first.read_bytes())
    return base


def _number(function):
    value = ctypes.c_int()
    assert function(ctypes.byref(value)) == 0
    return value.value


def test_functions_answer_to_their_cuda_names(folder):
    library = ctypes.CDLL(str(folder / "libmusart.so"))
    assert type(library) is ctypes.CDLL
    assert library._handle and library._name.endswith("libmusart.so")
    assert _number(library.cudaRuntimeGetVersion) == _number(library.musaRuntimeGetVersion) == 40300
    assert _number(library["cudaGetDeviceCount"]) == 3
    assert library.cudaGetDeviceCount is library.cudaGetDeviceCount
    library.cudaGetErrorString.restype = ctypes.c_char_p
    library.cudaGetErrorString.argtypes = [ctypes.c_int]
    assert library.cudaGetErrorString(0) == b"no error"
    with pytest.raises(ctypes.ArgumentError):
        library.cudaGetErrorString("x")


def test_prototypes_find_functions_by_their_cuda_names(folder):
    """ctypes' other way to a function: a prototype called with its name and the library."""
    library, other = (ctypes.CDLL(str(folder / name)) for name in ("libmusart.so", "libother.so"))
    prototype = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(ctypes.c_int))
    direction = ((2, "count"),)
    for name in ("cudaGetDeviceCount", b"cudaGetDeviceCount", "musaGetDeviceCount"):
        function = prototype((name, library), direction)
        assert function() == 3 and type(function) is prototype
    with pytest.raises(AttributeError, match="nor its MUSA spelling musaNo") as raised:
        prototype(("cudaNo", library))
    assert raised.value.name == "cudaNo" and raised.value.obj is library
    with pytest.raises(AttributeError, match=r"cudaGetDeviceCount$"):
        prototype(("cudaGetDeviceCount", other))
    seen = []
    callback = ctypes.CFUNCTYPE(None, ctypes.c_int)(seen.append)  # made by the same type, of something else
    callback(3)
    assert seen == [3] and library.cudaGetDeviceCount.__name__ == "cudaGetDeviceCount"


def test_a_name_the_library_has_itself_is_not_translated(folder):
    library = ctypes.CDLL(str(folder / "libmusart.so"))
    assert library.cudaOwnName() == 11
    assert library.musaOwnName() == 12


@pytest.mark.parametrize(
    "file,name,value",
    [
        ("libmccl.so.2", "ncclGetVersion", 21105),
        ("libmurand.so.1", "curandGetVersion", 1),
        ("libmusa.so.1", "cuDriverGetVersion", 5),
        ("libmusart-0a1b2c3d.so.4", "cudaRuntimeGetVersion", 40300),
    ],
)
def test_every_family(folder, file, name, value):
    for library in (
        ctypes.CDLL(str(folder / file)),
        ctypes.cdll.LoadLibrary(str(folder / file)),
        ctypes.PyDLL(str(folder / file)),
    ):
        assert _number(getattr(library, name)) == value


def test_irregular_spellings(folder):
    library = ctypes.CDLL(str(folder / "libmccl.so.2"))
    device = ctypes.c_int()
    assert library.ncclCommCuDevice(None, ctypes.byref(device)) == 0
    assert device.value == 7
    assert ctypes.CDLL(str(folder / "libmublas.so")).cublasCreate_v2(ctypes.byref(ctypes.c_void_p())) == 0


def test_missing_functions_name_both_spellings(folder):
    library = ctypes.CDLL(str(folder / "libmusart.so"))
    with pytest.raises(AttributeError, match=r"cudaNoSuchThing.*musaNoSuchThing"):
        library.cudaNoSuchThing
    with pytest.raises(AttributeError, match="musaNoSuchThing"):
        library["musaNoSuchThing"]
    assert not hasattr(library, "cudaNoSuchThing")
    assert not hasattr(library, "something_else")
    with pytest.raises(AttributeError):  # no counterpart with the same arguments
        library.cuTensorMapEncodeTiled


def test_other_libraries_are_not_touched(folder):
    library = ctypes.CDLL(str(folder / "libother.so"))
    assert not hasattr(library, "cudaRuntimeGetVersion")
    assert library.musaOwnName() == 12
    whole_process = ctypes.CDLL(None)
    assert whole_process._name is None
    if not BRINGS_CUDA:
        assert not hasattr(whole_process, "cudaRuntimeGetVersion")
        with pytest.raises(AttributeError):
            ctypes.pythonapi.cudaMalloc


def test_subclasses_and_copies(folder):
    class Library(ctypes.CDLL):
        _func_restype_ = ctypes.c_char_p

    library = Library(str(folder / "libmusart.so"))
    assert type(library) is Library
    assert library.cudaGetErrorString(0) == b"no error"
    # A library that is opened by its handle.
    again = ctypes.CDLL(str(folder / "libmusart.so"), handle=library._handle)
    assert _number(copy.copy(again).cudaGetDeviceCount) == 3


def test_asking_for_a_cuda_library_finds_its_counterpart(folder, monkeypatch, tmp_path):
    home = tmp_path / "musa"
    (home / "lib").mkdir(parents=True)
    for name in ("libmusart.so", "libmccl.so"):
        (home / "lib" / name).write_bytes((folder / "libmusart.so").read_bytes())
    monkeypatch.setenv("MUSA_HOME", str(home))
    for asked in ("libcudart.so", "libcudart.so.12", b"libcudart.so.11.0", "nowhere/libcudart.so.12"):
        library = ctypes.CDLL(asked)
        assert Path(library._name).name == "libmusart.so"
        assert _number(library.cudaGetDeviceCount) == 3
    assert _number(ctypes.cdll.LoadLibrary("libnccl.so.2").ncclGetVersion) == 21105
    assert _number(ctypes.CDLL(name="libnccl.so.2", mode=ctypes.RTLD_GLOBAL).ncclGetVersion) == 21105
    # Where only the program's part of the toolkit is installed the plain names, which compilers use, are missing.
    (home / "lib" / "libmccl.so").rename(home / "lib" / "libmccl.so.2")
    assert _number(ctypes.CDLL("libnccl.so.2").ncclGetVersion) == 21105
    # A file that is there is what was meant.
    (tmp_path / "libcudart.so.12").write_bytes((folder / "libmusart.so").read_bytes())
    own = ctypes.CDLL(str(tmp_path / "libcudart.so.12"))
    assert own._name == str(tmp_path / "libcudart.so.12")
    assert not hasattr(own, "cudaGetDeviceCount")


def test_a_library_that_is_nowhere(monkeypatch, tmp_path):
    monkeypatch.setenv("MUSA_HOME", str(tmp_path))
    absent = "libcurand.so.10" if not BRINGS_CUDA else "libcurand.so.9"
    with pytest.raises(OSError, match=rf"{absent.replace('.', chr(92) + '.')}.*libmurand\.so"):
        ctypes.CDLL(absent)
    with pytest.raises(OSError) as caught:
        ctypes.CDLL("libnothing_like_it.so")
    assert "MUSA" not in str(caught.value)
    with pytest.raises(OSError) as caught:  # NVML's counterpart takes other arguments
        ctypes.CDLL("libnvidia-ml.so.1")
    assert "MUSA" not in str(caught.value)


def test_find_library(folder, monkeypatch):
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    assert ctypes.util.find_library("musart") == "libmusart.so"
    assert ctypes.util.find_library("cudart") == "libmusart.so"
    assert ctypes.util.find_library("c") and "libc" in ctypes.util.find_library("c")
    assert ctypes.util.find_library("surely_not_here") is None


def test_off_means_off(folder):
    library = ctypes.CDLL(str(folder / "libmusart.so"))
    with torchada.disabled():
        with pytest.raises(AttributeError):
            library.cudaRuntimeGetVersion
    assert _number(library.cudaRuntimeGetVersion) == 40300


@pytest.mark.parametrize(
    "helper,pairs",
    [
        ("cuda_to_musa_name", {"cudaMalloc": "musaMalloc", "cuMemAlloc": "muMemAlloc", "cudaCUDAx": "musaMUSAx"}),
        ("nccl_to_mccl_name", {"ncclAllReduce": "mcclAllReduce", "pncclGroupEnd": "pmcclGroupEnd"}),
        ("cublas_to_mublas_name", {"cublasSgemm_v2": "mublasSgemm_v2", "cublasLtMatmul": "mublasLtMatmul"}),
        ("curand_to_murand_name", {"curandGenerate": "murandGenerate"}),
    ],
)
def test_name_helpers(helper, pairs):
    function = getattr(torchada, helper)
    for name, other in pairs.items():
        assert function(name) == other
        assert function(other) == other
    for name in ("", "custom", "cute", "cu_seqlens", "cuda", "my_cudaMalloc", "ncclx", "printf"):
        assert function(name) == name


def test_cuda_home_is_the_toolkit_of_the_machine(run_python, tmp_path):
    code = "import torchada; print(torchada.CUDA_HOME)"
    told = run_python(code, env={"MUSA_HOME": str(tmp_path), "CUDA_HOME": "/elsewhere"}).stdout.strip()
    assert told == str(tmp_path)
    other = {"MUSA_HOME": str(tmp_path), "CUDA_HOME": "/elsewhere", "TORCHADA_SIMULATE": None}
    assert run_python(code, env=other).stdout.strip() == "/elsewhere"
