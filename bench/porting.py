"""How fast the source porter is, beside torch's hipify on the same files: ``python -m bench.porting [DIR...]``.

Without DIR a tree is generated. One process each, processor time (the best of three runs; hipify:
one), reading and porting only; hipify also writes.
"""

from __future__ import annotations

import contextlib
import io
import shutil
import sys
import tempfile
import time
from pathlib import Path

from torchada.porting.tree import walk
from torchada.porting.work import port_files

KERNEL = """\
// A kernel of a common kind, with the usual share of comments, device code and calls of the runtime.
#include <cuda_runtime.h>
#include <ATen/cuda/CUDAContext.h>
#include "project/utils_cuda.h"
namespace project {
template <typename scalar_t, int kThreads>
__global__ void scaled_sum_kernel_%d(const scalar_t* __restrict__ input, scalar_t* __restrict__ output,
                                     const int64_t size, const float scale) {
  extern __shared__ float shared_buffer[];
  const int index = blockIdx.x * blockDim.x + threadIdx.x;
  float accumulator = 0.f;
  for (int i = index; i < size; i += gridDim.x * blockDim.x) {
    accumulator += static_cast<float>(input[i]) * scale;  // in float
  }
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  accumulator = __shfl_xor_sync(0xffffffff, accumulator, 16);
#endif
  if (threadIdx.x == 0) output[blockIdx.x] = static_cast<scalar_t>(accumulator);
}

void scaled_sum_%d(torch::Tensor input, torch::Tensor output, double scale) {
  TORCH_CHECK(input.is_cuda(), "input must be a CUDA tensor");
  const at::cuda::OptionalCUDAGuard device_guard(device_of(input));
  const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
  const dim3 grid((input.numel() + 255) / 256), block(256);
  AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::kBFloat16, input.scalar_type(), "scaled_sum", [&] {
    scaled_sum_kernel_%d<scalar_t, 256><<<grid, block, 0, stream>>>(
        input.data_ptr<scalar_t>(), output.data_ptr<scalar_t>(), input.numel(), static_cast<float>(scale));
  });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
}
}  // namespace project
"""


def generate(folder: Path, files: int = 40, kernels: int = 40) -> None:
    """*files* files of *kernels* kernels each (about 70 kB) in *folder*."""
    for i in range(files):
        text = "".join(KERNEL % (n, n, n) for n in range(i * kernels, (i + 1) * kernels))
        (folder / f"kernels_{i}.cu").write_text(text)


def hipify(folder: Path) -> float:
    """Processor seconds that torch's hipify takes for a copy of *folder*."""
    from torch.utils.hipify import hipify_python

    with tempfile.TemporaryDirectory() as target:
        copy = Path(target) / "copy"
        shutil.copytree(folder, copy, symlinks=True)
        begin = time.process_time()
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            hipify_python.hipify(str(copy), str(copy), includes=[f"{copy}/*"], is_pytorch_extension=True)
        return time.process_time() - begin


def measure(folder: Path, name: str) -> str:
    """A row of the table for the sources in *folder*; they are ported again in a copy, where nothing may change."""
    with tempfile.TemporaryDirectory() as target:
        copy = Path(target) / "copy"  # the sources that are ported, and nothing else: hipify reads the same
        sources = walk(folder).sources
        for path in sources:
            (copy / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(folder / path, copy / path)
        size = sum((copy / path).stat().st_size for path in sources) / 1e6
        list(port_files(copy, sources[:1], workers=1))  # the tables are read once
        seconds = float("inf")
        for _ in range(3):
            begin = time.process_time()
            results = list(port_files(copy, sources, workers=1))
            seconds = min(seconds, time.process_time() - begin)
        slow = hipify(copy)
        for result in results:
            if result.new is not None:
                (copy / result.path).write_bytes(result.new)
        again = sum(result.new is not None for result in port_files(copy, sources, workers=1))
    changes = sum(len(result.changes) for result in results)
    told = [problem for result in results for problem in result.problems if not problem.note]
    ptx = sum(problem.name in ("asm", "__asm", "__asm__") for problem in told)
    changed = sum(result.new is not None for result in results)
    return (
        f"| {name} | {len(sources)} | {size:.2f} | {changed} | {changes} | {len(told) - ptx} | {ptx} | {again} | "
        f"{seconds:.2f} | {size / seconds:.1f} | {size / slow:.1f} |"
    )


def main() -> None:
    print("| sources | files | MB | changed | changes | names told | PTX told | again | s | MB/s | hipify MB/s |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    for folder in map(Path, sys.argv[1:]):
        print(measure(folder, folder.name), flush=True)
    if len(sys.argv) < 2:
        with tempfile.TemporaryDirectory() as generated:
            generate(Path(generated))
            print(measure(Path(generated), "generated"))


if __name__ == "__main__":
    main()
