// A stand-in for the MUSA runtime: kernels are functions of the host, and device memory is the host's.
#pragma once
#include <condition_variable>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static  // blocks run one after the other
#define __constant__ static

typedef enum { musaSuccess = 0, musaErrorInvalidValue = 1, musaErrorMemoryAllocation = 2 } musaError_t;
typedef enum { musaMemcpyHostToDevice = 1, musaMemcpyDeviceToHost = 2, musaMemcpyDeviceToDevice = 3 } musaMemcpyKind;
typedef struct MUstream_st *musaStream_t;
struct uint3 { unsigned x, y, z; };
struct dim3 {
  unsigned x, y, z;
  dim3(unsigned x = 1, unsigned y = 1, unsigned z = 1) : x(x), y(y), z(z) {}
};

extern "C" {  // in libmusart.so
musaError_t musaGetLastError(void);
musaError_t musaGetDeviceCount(int *count);
const char *musaGetErrorString(musaError_t error);
}
inline musaError_t musaMalloc(void **p, size_t n) {
  *p = malloc(n);
  return *p ? musaSuccess : musaErrorMemoryAllocation;
}
template <class T> musaError_t musaMalloc(T **p, size_t n) { return musaMalloc(reinterpret_cast<void **>(p), n); }
inline musaError_t musaFree(void *p) { free(p); return musaSuccess; }
inline musaError_t musaMemcpy(void *to, const void *from, size_t n, musaMemcpyKind) {
  memcpy(to, from, n);
  return musaSuccess;
}
inline musaError_t musaMemcpyAsync(void *to, const void *from, size_t n, musaMemcpyKind kind, musaStream_t = nullptr) {
  return musaMemcpy(to, from, n, kind);
}
inline musaError_t musaDeviceSynchronize() { return musaSuccess; }
inline musaError_t musaStreamSynchronize(musaStream_t) { return musaSuccess; }

inline thread_local uint3 threadIdx, blockIdx;
inline thread_local dim3 blockDim, gridDim;
constexpr int warpSize = 32;

namespace musa_stand_in {
struct Barrier {
  std::mutex mutex;
  std::condition_variable all;
  unsigned expected, here = 0, round = 0;
  explicit Barrier(unsigned n) : expected(n) {}
  void wait() {
    std::unique_lock<std::mutex> lock(mutex);
    unsigned mine = round;
    if (++here == expected) {
      here = 0;
      ++round;
      all.notify_all();
    } else {
      all.wait(lock, [&] { return round != mine; });
    }
  }
};
inline thread_local Barrier *barrier;
struct Shape {
  dim3 grid, block;
  Shape(dim3 grid, dim3 block, size_t = 0, musaStream_t = nullptr) : grid(grid), block(block) {}
};
template <class T> struct Same { using type = T; };  // not deduced from the arguments
template <class... P> auto launch(Shape shape, void (*kernel)(P...)) {
  return [=](typename Same<P>::type... arguments) {
    for (unsigned b = 0; b < shape.grid.x; ++b) {
      Barrier shared(shape.block.x);
      std::vector<std::thread> threads;
      for (unsigned t = 0; t < shape.block.x; ++t)
        threads.emplace_back([&, b, t] {
          threadIdx = {t, 0, 0}, blockIdx = {b, 0, 0}, blockDim = shape.block, gridDim = shape.grid;
          barrier = &shared;
          kernel(arguments...);
        });
      for (auto &thread : threads) thread.join();
    }
  };
}
}  // namespace musa_stand_in

inline void __syncthreads() { musa_stand_in::barrier->wait(); }
template <class T> T atomicAdd(T *p, T v) {
  static std::mutex one;
  std::lock_guard<std::mutex> lock(one);
  T old = *p;
  *p += v;
  return old;
}
