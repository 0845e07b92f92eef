"""Extensions built through the whole chain; a stand-in compiler makes kernels that run on the simulated device."""

import json
import os
import shutil
import sys
from pathlib import Path

import pytest
import setuptools
import torch

from tests.activation.conftest import active  # noqa: F401  (an environment with the start file)
from tests.extensions.support import HERE, ROOT, environment, make_toolkit, run
from torchada.utils.cpp_extension import stable_compat_box_header

USE = """
import torch, project_cuda
x = torch.arange(100.0, device="cuda")
assert project_cuda.scale(x.data_ptr(), 100, 2.0) == 0
assert x.tolist() == [2.0 * i for i in range(100)], x
out = torch.zeros(1, device="cuda")
assert project_cuda.total(x.data_ptr(), 100, out.data_ptr()) == 0
assert out.item() == 9900.0, out
print("rule", *project_cuda.facts())
"""


def files(folder):
    """What every file of a project holds, without what a build makes."""
    made = ("build", "project.egg-info", "__pycache__")
    paths = [path for path in Path(folder).rglob("*") if path.is_file() and path.suffix != ".so"]
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in paths
        if path.relative_to(folder).parts[0] not in made
    }


def commands(tmp):
    """mcc's command lines."""
    return [json.loads(line) for line in (Path(tmp) / "mcc.log").read_text().splitlines()]


@pytest.fixture(scope="session")
def toolkit(made_once):
    return made_once("toolkit", make_toolkit)


@pytest.fixture(scope="module")
def in_place(tmp_path_factory, toolkit):
    """The project, built with ninja where it lies: its folder, the sources as they were, and what the build printed."""
    tmp = tmp_path_factory.mktemp("in_place")
    shutil.copytree(HERE / "project", tmp / "project")
    before = files(tmp / "project")
    env = environment(toolkit, tmp)
    out = run(["setup.py", "build_ext", "--inplace"], tmp / "project", env)
    return tmp, before, out, env


def test_built_in_place(in_place):
    tmp, before, out, env = in_place
    assert run(["-c", USE], tmp / "project", env).strip() == "rule 1 52"
    after = files(tmp / "project")
    assert after.keys() == before.keys() and after["setup.py"] == before["setup.py"]
    assert b"musaError_t scale" in after["include/kernels.cuh"]
    assert b"// cudaMalloc in a comment stays, as does the name my_cudaError_t." in after["include/kernels.cuh"]
    assert b"__MUSA_ARCH__ >= 220" in after["kernels/scale.cu"] and b"MTJPEG_FOUND" in after["kernels/total.cu"]
    assert "ported 4 of 4 files in place" in out and "--undo" in out


def test_flags_that_mcc_gets(in_place):
    compiled = [command for command in commands(in_place[0]) if "-c" in command]
    linked = [command for command in commands(in_place[0]) if "-dlink" in command]
    assert len(compiled) == 2 and len(linked) == 1
    for command in compiled:
        assert {"-O1", "-ffast-math", "-fgpu-rdc", "-fPIC", "-Wall", "-DMTJPEG_FOUND=1", "-DONLY_MCC"} <= set(command)
        assert {"-fvisibility=hidden", "-gline-tables-only", "--offload-arch=mp_31"} <= set(command)
        assert command[command.index("-x") + 1] == "musa"
    assert "--offload-arch=mp_31" in linked[0]


def test_a_second_build_does_nothing_and_a_changed_header_is_seen(in_place):
    tmp, _, _, env = in_place
    (tmp / "mcc.log").unlink()
    out = run(["setup.py", "build_ext", "--inplace"], tmp / "project", env)
    assert "no work to do" in out and "files in place" not in out and not (tmp / "mcc.log").exists()
    header = tmp / "project/include/kernels.cuh"
    header.write_bytes(header.read_bytes() + b"cudaError_t one_more(cudaStream_t stream);\n")
    out = run(["setup.py", "build_ext", "--inplace"], tmp / "project", env)
    assert "ported 1 of 4 files in place" in out
    assert len([command for command in commands(tmp) if "-c" in command]) == 2
    header.write_bytes(header.read_bytes().replace(b"musaError_t one_more(musaStream_t stream);\n", b""))


def test_undo_gives_the_sources_back(in_place):
    tmp, before, _, env = in_place
    told = run(["-m", "torchada", "port", "--undo"], tmp / "project", env | {"TORCHADA": "0"})
    assert "restored kernels/scale.cu" in told
    assert files(tmp / "project") == before
    assert not (tmp / "project/build/.torchada-port").exists()


def test_built_from_a_copy_without_ninja(tmp_path, toolkit):
    project = tmp_path / "project"
    shutil.copytree(HERE / "project", project)
    before = files(project)
    env = environment(toolkit, tmp_path, TORCHADA_PORT="copy", PROJECT_PLAIN="1")
    out = run(["setup.py", "build_ext", "--inplace"], project, env)
    assert "ninja" not in out and "in place" not in out
    assert run(["-c", USE], project, env).strip() == "rule 1 52"
    assert files(project) == before
    assert len(commands(tmp_path)) == 2 and all(
        "-x" in command and "-fPIC" in command for command in commands(tmp_path)
    )


LOAD = """
import inspect, os, sys, torch
from torch.utils.cpp_extension import load, load_inline

folder = sys.argv[1]
MODULE = '''
#include <Python.h>
#include <cuda_runtime.h>
cudaError_t launch(float *x, int n, cudaStream_t stream);
static PyObject *run(PyObject *, PyObject *a) {
  long long x; int n;
  if (!PyArg_ParseTuple(a, "Li", &x, &n)) return nullptr;
  return PyLong_FromLong(launch(reinterpret_cast<float *>(x), n, nullptr));
}
static PyMethodDef methods[] = {{"run", run, METH_VARARGS, ""}, {nullptr}};
static PyModuleDef module = {PyModuleDef_HEAD_INIT, "m", nullptr, -1, methods};
PyMODINIT_FUNC INIT() { return PyModule_Create(&module); }
'''
KERNEL = '''
#include <cuda_runtime.h>
__global__ void kernel(float *x, int n) { int i = threadIdx.x; if (i < n) x[i] += EXTRA; }
cudaError_t launch(float *x, int n, cudaStream_t stream) {
  kernel<<<1, 32, 0, stream>>>(x, n);
  return cudaGetLastError();
}
'''
x = torch.zeros(4, device="cuda")
m = load_inline(
    "inline_ext", [MODULE], [KERNEL], extra_cflags=["-DINIT=PyInit_inline_ext"],
    extra_cuda_cflags=["-DEXTRA=1", "--use_fast_math", "-Xptxas", "-v"], extra_ldflags=["-lcuda"],
    **({"no_implicit_headers": True} if "no_implicit_headers" in inspect.signature(load_inline).parameters else {}),
)
assert m.run(x.data_ptr(), 4) == 0 and x.tolist() == [1.0] * 4, x

os.makedirs(folder + "/src"), os.makedirs(folder + "/inc")
with open(folder + "/src/k.cu", "w") as f:
    f.write('#include "own.cuh"\\n' + KERNEL)
with open(folder + "/inc/own.cuh", "w") as f:
    f.write("#include <cuda_runtime.h>\\ninline cudaError_t unused() { return cudaSuccess; }\\n")
with open(folder + "/src/m.cpp", "w") as f:
    f.write(MODULE)
m = load(
    "file_ext", [folder + "/src/m.cpp", folder + "/src/k.cu"], extra_cflags=["-DINIT=PyInit_file_ext"],
    extra_cuda_cflags=["-DEXTRA=2"], extra_include_paths=[folder + "/inc"],
)
assert m.run(x.data_ptr(), 3) == 0 and x.tolist() == [3.0, 3.0, 3.0, 1.0], x
assert "cudaGetLastError" in open(folder + "/src/k.cu").read(), "load leaves the sources alone"
"""


def test_load_inline(tmp_path, toolkit):
    env = environment(toolkit, tmp_path)
    told = run(["-c", LOAD, str(tmp_path / "own")], tmp_path, env)
    assert "nvcc's flag -Xptxas is left out: there is no ptxas" in told
    assert [("-ffast-math" in command) for command in commands(tmp_path)] == [True, False]


STABLE = """
#include <cuda_runtime.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/core/Dispatch.h>
#include <tuple>

template <typename T>
__global__ void add_kernel(const T *x, T *y, T by, int64_t n) {
  for (int64_t i = threadIdx.x; i < n; i += blockDim.x) y[i] = x[i] + by;
}
template <typename T> void add_as(const torch::stable::Tensor &x, torch::stable::Tensor &y, double by) {
  add_kernel<T><<<1, 8>>>(x.const_data_ptr<T>(), y.mutable_data_ptr<T>(), static_cast<T>(by), x.numel());
}
std::tuple<torch::stable::Tensor, int64_t> add(const torch::stable::Tensor &x, double by) {
  STD_TORCH_CHECK(x.is_cuda() && x.device().is_cuda() && x.is_contiguous(), "a contiguous CUDA tensor");
  torch::stable::Tensor y = torch::stable::empty_like(x);
  THO_DISPATCH_SWITCH(x.scalar_type(), "add",
    THO_DISPATCH_CASE(torch::headeronly::ScalarType::Float, [&] { add_as<scalar_t>(x, y, by); })
    THO_DISPATCH_CASE(torch::headeronly::ScalarType::Int, [&] { add_as<scalar_t>(x, y, by); }));
  STD_CUDA_KERNEL_LAUNCH_CHECK();
  return {y, static_cast<int64_t>(x.sizes().size() + x.element_size())};
}
void fail(const torch::stable::Tensor &) { STD_CUDA_CHECK(cudaErrorInvalidValue); }

STABLE_TORCH_LIBRARY(stable_ext, m) {
  m.def("add(Tensor x, float by) -> (Tensor, int)");
  m.def("fail(Tensor x) -> ()");
}
STABLE_TORCH_LIBRARY_IMPL(stable_ext, CUDA, m) {
  m.impl("add", TORCH_BOX(&add));
  m.impl("fail", TORCH_BOX(&fail));
}
"""

USE_STABLE = """
import sys, torch
from torch.utils.cpp_extension import load
load("stable_ext", [sys.argv[1]], is_python_module=False)
x = torch.arange(10.0, device="cuda").view(2, 5)
for x in (x, x.int()):
    y, n = torch.ops.stable_ext.add(x, 3.0)
    assert torch.equal(y, x + 3) and y.dtype == x.dtype and n == 6, (y, n)
try:
    torch.ops.stable_ext.fail(x)
except RuntimeError as error:
    print(error)
"""


@pytest.mark.skipif(
    not os.path.exists(Path(torch.__file__).with_name("include") / "torch/csrc/stable/ops.h"),
    reason="torch has a stable ABI since 2.9",
)
def test_code_for_torchs_stable_abi(tmp_path, toolkit):
    (tmp_path / "k.cu").write_text(STABLE)
    told = run(["-c", USE_STABLE, str(tmp_path / "k.cu")], tmp_path, environment(toolkit, tmp_path))
    assert "musaErrorInvalidValue failed: error" in told
    (command,) = commands(tmp_path)
    assert command[command.index("-include") + 1] == stable_compat_box_header()


def test_the_example_installs_under_the_start_file(tmp_path, toolkit, active):  # noqa: F811
    shutil.copytree(ROOT / "docs/examples/extension", tmp_path / "example")
    before = files(tmp_path / "example")
    target = str(tmp_path / "site")
    # Where torch and setuptools lie, as paths only: torchada comes from the environment, switched on by its start file.
    outer = os.pathsep.join({str(Path(module.__file__).parents[1]) for module in (torch, setuptools)})
    env = environment(toolkit, tmp_path, PYTHONPATH=outer, TORCHADA_PORT="copy")
    install = [sys.executable, "-m", "pip", "--python", active.python, "install", "--no-index", "--no-deps", "--quiet"]
    install += ["--no-build-isolation", "--target", target, str(tmp_path / "example")]
    done = active.run(*install[1:], program=install[0], env=env, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    assert files(tmp_path / "example").items() >= before.items()
    said = active.run("-m", "softclip", env=env | {"PYTHONPATH": f"{target}{os.pathsep}{outer}"}).lines()
    assert said[-1] == "softclip on musa:0: -1.486 to 1.486"
    assert any("softclip.cu" in word for command in commands(tmp_path) for word in command)
    assert os.environ.get("MCC_LOG") is None
