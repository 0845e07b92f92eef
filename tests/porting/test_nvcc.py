"""Ported sources compile, against headers that map the MUSA names back to CUDA's: where nvcc is on the machine."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.porting.back import write_headers
from torchada.porting import Porter

NVCC = shutil.which("nvcc")
SOURCE = r"""
#include <cuda.h>
#include <cuda_runtime.h>
#include "cuda_fp16.h"
#  include <cuda_bf16.h>
#include <cuda_fp8.h>
#include <cooperative_groups.h>
#include <cub/cub.cuh>
#include <cuda/std/limits>
#include <thrust/system/cuda/execution_policy.h>
#include <cuComplex.h>
#include <cuda_profiler_api.h>

#define CUDA_CHECK(expression)                    \
  do {                                            \
    cudaError_t e = (expression);                 \
    if (e != cudaSuccess) throw cudaGetErrorString(e); \
  } while (0)
#ifndef __CUDA_ARCH__
constexpr bool on_host = true;
#elif __CUDA_ARCH__ >= 800 && \
    __CUDA_ARCH__ < 900
#define BETWEEN 1
#endif

namespace project {
namespace cg = cooperative_groups;

template <typename T>
__global__ void scale(const T* __restrict__ in, T* out, int n, float factor) {
  extern __shared__ unsigned char shared[];
  auto block = cg::this_thread_block();
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  typedef cub::BlockReduce<float, 128> Reduce;
  __shared__ typename Reduce::TempStorage storage;
  float value = i < n ? static_cast<float>(in[i]) * factor : cuda::std::numeric_limits<float>::lowest();
  value = Reduce(storage).Sum(value);
#if 700 <= __CUDA_ARCH__ && defined(__CUDACC__)
  value += __shfl_xor_sync(0xffffffff, value, 16);
#endif
  cudaGridDependencySynchronize();
  ::cudaTriggerProgrammaticLaunchCompletion();
  block.sync();
  if (i < n) out[i] = static_cast<T>(value);
}

__device__ __nv_bfloat162 sum(__nv_bfloat162 a, nv_bfloat16 b, __nv_fp8_e4m3 c) {
  return __hadd2(a, __nv_bfloat162{b, __float2bfloat16(float(c))});
}

struct Event {
  Event() { CUDA_CHECK(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming)); }
  ~Event() { cudaEventDestroy(event_); }
  cudaEvent_t event_{};
};

void run(cudaStream_t stream, int n) {
  cudaDeviceProp properties;
  CUDA_CHECK(cudaGetDeviceProperties(&properties, 0));
  __half *in = nullptr, *out = nullptr;
  CUDA_CHECK(cudaMallocAsync(reinterpret_cast<void**>(&in), n * sizeof(__half), stream));
  CUDA_CHECK(cudaMalloc(&out, n * sizeof(__half)));
  CUDA_CHECK(cudaFuncSetAttribute(scale<__half>, cudaFuncAttributeMaxDynamicSharedMemorySize, 1 << 16));
  scale<__half><<<dim3((n + 127) / 128), 128, 0, stream>>>(in, out, n, 2.f);
  CUDA_CHECK(cudaGetLastError());
  CUDA_CHECK(cudaMemcpyAsync(out, in, n, cudaMemcpyDeviceToDevice, stream));
  CUDA_CHECK(cudaStreamSynchronize(stream));
  auto policy = thrust::cuda::par.on(stream);
  (void)policy;
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  CUDA_CHECK(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  CUDA_CHECK(cudaStreamEndCapture(stream, &graph));
  CUDA_CHECK(cudaGraphInstantiate(&executable, graph, 0));
  CUDA_CHECK(cudaGraphLaunch(executable, stream));
  CUdevice device;
  CUcontext context;
  CUdeviceptr pointer = 0;
  if (cuDeviceGet(&device, 0) != CUDA_SUCCESS || cuCtxGetCurrent(&context) != CUDA_SUCCESS) return;
  int value = 0;
  cuDeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  cuMemcpyHtoDAsync(pointer, &value, sizeof value, stream);
  CUmemAllocationProp allocation{};
  allocation.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  cuComplex number = make_cuFloatComplex(1.f, cuCimagf(make_cuComplex(1.f, 2.f)));
  (void)number;
  cudaProfilerStop();
  CUDA_CHECK(cudaFree(in));
}
}  // namespace project
"""


def front_end(source: Path, *options: str) -> subprocess.CompletedProcess[str]:
    """nvcc's front ends over *source*, for host and device; no code is made."""
    command = [
        str(NVCC),
        "-std=c++17",
        "-arch=sm_80",
        "--ptx",
        "-O0",
        "-o",
        str(source) + ".out",
        *options,
        str(source),
    ]
    return subprocess.run(command, capture_output=True, text=True, timeout=600)


@pytest.mark.skipif(NVCC is None, reason="needs nvcc")
def test_a_ported_source_compiles(tmp_path):
    ported = Porter().port(SOURCE, "kernel.cu")
    assert not ported.problems
    assert not [word for word in ("cudaFree", "cuCtx", "__nv_", "<cuda") if word in ported.text]
    write_headers(tmp_path, [ported])
    (tmp_path / "kernel.cu").write_text(ported.text)
    options = [f"-I{tmp_path}", "-include", f"{tmp_path}/musa_back.h"]
    made = front_end(tmp_path / "kernel.cu", *options)
    assert made.returncode == 0, made.stderr[-3000:]
    (tmp_path / "wrong.cu").write_text("#include <musa_runtime.h>\nvoid f() { musaMaloc(0, 0); }\n")
    made = front_end(tmp_path / "wrong.cu", *options)
    assert 'identifier "musaMaloc" is undefined' in made.stderr
