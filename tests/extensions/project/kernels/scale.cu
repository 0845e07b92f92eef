#include "kernels.cuh"

__global__ void scale_kernel(float* x, int n, float by) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
#if __CUDA_ARCH__ >= 800
  if (i < n) x[i] *= by;
#else
  x[i] = -1;
#endif
}

cudaError_t scale(float* x, int n, float by, cudaStream_t stream) {
  scale_kernel<<<(n + 63) / 64, 64, 0, stream>>>(x, n, by);
  return cudaGetLastError();
}
