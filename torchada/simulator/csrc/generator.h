// The device generator: a seed and an offset that grows with every random operator, as on CUDA.
#pragma once

#include "sim.h"

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>

namespace sim {

struct MusaGenerator;

// The numbers of one operator, reserved when it is issued and drawn when it runs. In a graph the offset counts from
// where the generator stands when the graph is replayed.
struct RngTicket {
  c10::intrusive_ptr<MusaGenerator> generator;
  uint64_t seed, offset;
  bool relative;
  at::mt19937 engine() const;
};

// Where the generator of a graph that is replayed on this thread stands.
struct ReplayRng {
  ReplayRng(uint64_t seed, uint64_t offset);
  ~ReplayRng();
  ReplayRng(const ReplayRng&) = delete;
  ReplayRng& operator=(const ReplayRng&) = delete;
  uint64_t seed, offset;

 private:
  const ReplayRng* previous_;
};

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
  // The same for an operator that runs later. During a capture: only the captured graph's generator has one.
  RngTicket reserve();
  // Seed and offset now; moves the offset on by `increment`.
  std::pair<uint64_t, uint64_t> advance(uint64_t increment);

 private:
  MusaGenerator* clone_impl() const override;
  uint64_t seed_ = c10::default_rng_seed_val;
  uint64_t offset_ = 0;
};

const at::Generator& default_generator(int device);

} // namespace sim
