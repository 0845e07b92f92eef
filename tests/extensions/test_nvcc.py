"""Ported sources, checked by nvcc where it is: with headers that map the MUSA names back, they have to compile."""

import shutil
import subprocess

import pytest

from tests.extensions.support import HERE
from torchada.porting import Porter

SAMPLE = r"""
#include <cooperative_groups.h>
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#define CHECK(call) do { cudaError_t error = (call); if (error != cudaSuccess) return error; } while (0)
namespace cg = cooperative_groups;

template <typename T> struct Pair { T a, b; };

__constant__ float weights[16];

__global__ void __launch_bounds__(256) kernel(const __half* x, __nv_bfloat16* y, float* sum, int n) {
  extern __shared__ float buffer[];
  cg::thread_block block = cg::this_thread_block();
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  buffer[threadIdx.x] = i < n ? __half2float(x[i]) * weights[i & 15] : 0.f;
#else
#error "the architecture and its number change together"
#endif
  block.sync();
  for (int d = 16; d; d /= 2) buffer[threadIdx.x] += __shfl_xor_sync(0xffffffffu, buffer[threadIdx.x], d);
  if (i < n) y[i] = __float2bfloat16(buffer[threadIdx.x]);
  atomicAdd(sum, buffer[threadIdx.x]);
}

cudaError_t run(const __half* x, __nv_bfloat16* y, int n, cudaStream_t stream) {
  int device = 0;
  cudaDeviceProp properties;
  CHECK(cudaGetDevice(&device));
  CHECK(cudaGetDeviceProperties(&properties, device));
  float *sum = nullptr, host[16] = {};
  CHECK(cudaMalloc(&sum, sizeof(float)));
  CHECK(cudaMemsetAsync(sum, 0, sizeof(float), stream));
  CHECK(cudaMemcpyToSymbolAsync(weights, host, sizeof(host), 0, cudaMemcpyHostToDevice, stream));
  CHECK(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, 4096));
  cudaEvent_t start, stop;
  CHECK(cudaEventCreateWithFlags(&start, cudaEventDisableTiming));
  CHECK(cudaEventCreate(&stop));
  CHECK(cudaEventRecord(start, stream));
  kernel<<<dim3((n + 255) / 256), 256, 1024, stream>>>(x, y, sum, n);
  CHECK(cudaGetLastError());
  CHECK(cudaEventRecord(stop, stream));
  CHECK(cudaStreamWaitEvent(stream, stop, 0));
  CHECK(cudaStreamSynchronize(stream));
  CHECK(cudaMemcpy(host, sum, sizeof(float), cudaMemcpyDeviceToHost));
  CHECK(cudaEventDestroy(start));
  return cudaFree(sum);
}
"""


@pytest.mark.skipif(shutil.which("nvcc") is None, reason="there is no nvcc")
def test_ported_sources_compile_with_their_names_mapped_back(tmp_path):
    porter = Porter()
    texts = {"sample.cu": SAMPLE, "total.cu": (HERE / "project/kernels/total.cu").read_text()}
    texts["kernels.cuh"] = (HERE / "project/include/kernels.cuh").read_text()
    back = {}
    for name, text in texts.items():
        ported = porter.port(text.replace("../include/", ""), name, lambda path: path in texts)
        assert not [problem for problem in ported.problems if not problem.note], ported.problems
        (tmp_path / name).write_text(ported.text)
        for change in ported.changes:
            if change.new.isidentifier() and change.old.isidentifier():
                assert back.setdefault(change.new, change.old) == change.old
        for path in ("runtime", "fp16", "bf16"):  # nothing of CUDA's is left in the ported text
            assert f"cuda_{path}.h" not in ported.text
    assert back["musaMemcpyToSymbolAsync"] == "cudaMemcpyToSymbolAsync" and len(back) > 25
    back.pop("__MUSA_ARCH__")
    for name in ("runtime", "fp16", "bf16"):
        (tmp_path / f"musa_{name}.h").write_text(f"#pragma once\n#include <cuda_{name}.h>\n#include <back.h>\n")
    (tmp_path / "back.h").write_text("#pragma once\n" + "".join(f"#define {new} {old}\n" for new, old in back.items()))
    (tmp_path / "all.cu").write_text('#include "sample.cu"\n#include "total.cu"\n')
    command = [
        "nvcc",
        "-c",
        "-std=c++17",
        "-arch=sm_80",
        "-I.",
        "-DMTJPEG_FOUND",
        "-DONLY_MCC",
        "-o",
        "all.o",
        "all.cu",
    ]
    command += ["-D__MUSA_ARCH__=310"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
