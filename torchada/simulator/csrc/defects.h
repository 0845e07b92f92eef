// Known defects of torch_musa that the compiled part shows. Which torch_musa has which, and what each is, stands in
// torchada/simulator/profiles.py; torch_musa's Python part hands the names over when it loads the library.
#pragma once

#include <atomic>

namespace sim {

// The names are those of profiles.py.
#define SIM_DEFECTS(X)                                                                 \
  X(float64_log_inplace) /* log_ has no kernel for float64 */                          \
  X(log_capture)         /* log and log_ cannot be captured in a graph */              \
  X(multinomial_capture) /* multinomial cannot be captured in a graph */              \
  X(mm_out_dtype)        /* mm and bmm with out_dtype= give zeros */                   \
  X(bool_mul_sync)       /* the product of two boolean tensors waits for the device */ \
  X(accelerator_memory)  /* the allocator is not of the kind torch.accelerator's memory functions need */

enum class Defect : int {
#define SIM_DEFECT_ENUM(name) name,
  SIM_DEFECTS(SIM_DEFECT_ENUM)
#undef SIM_DEFECT_ENUM
      count_
};

extern std::atomic<bool> active_defects[static_cast<int>(Defect::count_)]; // profile.cpp

// Whether the device shows this defect now: one relaxed load, for use in kernels.
inline bool defect(Defect which) {
  return active_defects[static_cast<int>(which)].load(std::memory_order_relaxed);
}

} // namespace sim
