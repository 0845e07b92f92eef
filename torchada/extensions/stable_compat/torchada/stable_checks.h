// STD_CUDA_CHECK and STD_CUDA_KERNEL_LAUNCH_CHECK for MUSA calls, also under MUSA's names.
#pragma once

#include <stdexcept>
#include <string>

#if __has_include(<musa_runtime.h>)
#include <musa_runtime.h>

namespace torchada::stable {
[[noreturn]] inline void call_failed(musaError_t error, const char* call, const char* file, int line) {
  throw std::runtime_error(
      std::string(call) + " failed: " + musaGetErrorString(error) + " (" + file + ":" + std::to_string(line) + ")");
}
}  // namespace torchada::stable

#define STD_MUSA_CHECK(EXPR)                                                                       \
  do {                                                                                             \
    const musaError_t torchada_error_ = (EXPR);                                                    \
    if (torchada_error_ != musaSuccess)                                                            \
      torchada::stable::call_failed(torchada_error_, #EXPR, __FILE__, static_cast<int>(__LINE__)); \
  } while (0)
#define STD_MUSA_KERNEL_LAUNCH_CHECK() STD_MUSA_CHECK(musaGetLastError())

#undef STD_CUDA_CHECK
#undef STD_CUDA_KERNEL_LAUNCH_CHECK
#define STD_CUDA_CHECK(EXPR) STD_MUSA_CHECK(EXPR)
#define STD_CUDA_KERNEL_LAUNCH_CHECK() STD_MUSA_KERNEL_LAUNCH_CHECK()
#endif
