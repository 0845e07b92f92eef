// The device generator: a seed and an offset that grows with every random operator, as on CUDA.
#pragma once

#include "sim.h"

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

namespace sim {

struct MusaGenerator final : c10::GeneratorImpl {
  explicit MusaGenerator(c10::DeviceIndex index);
  void set_current_seed(uint64_t seed) override;
  void set_offset(uint64_t offset) override;
  uint64_t get_offset() const override;
  uint64_t current_seed() const override;
  uint64_t seed() override;
  void set_state(const c10::TensorImpl& state) override;
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override;

  // The engine for one operator; moves the offset on.
  at::mt19937 next_engine();

 private:
  MusaGenerator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(int device);

} // namespace sim
