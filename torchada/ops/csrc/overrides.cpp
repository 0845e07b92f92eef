// ATen operators of the PrivateUse1 backend that torchada answers itself, for versions of torch_musa whose own kernels
// cannot be captured in a graph.
//
// They are made of other ATen operators, which the backend has kernels for: so they need no device compiler, follow
// the backend's generators (and with them its graph-safe Philox state), streams and memory, and are captured as far
// as those are. Nothing is registered when the library is loaded: torchada_ops_install() does that, operator by
// operator, and torchada_ops_remove() gives the backend its own kernel back. Besides, one thing that torch binds for
// Python only where it is built for CUDA: torchada_ops_forbid().
#include <ATen/ops/abs.h>
#include <ATen/ops/angle.h>
#include <ATen/ops/argmax.h>
#include <ATen/ops/complex.h>
#include <ATen/ops/cumsum.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/gather.h>
#include <ATen/ops/isfinite.h>
#include <ATen/ops/searchsorted.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/topk.h>
#include <ATen/ops/where.h>
#include <ATen/ops/xlogy.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include <atomic>
#include <cmath>
#include <cstdio>
#include <map>
#include <memory>
#include <mutex>
#include <string>

namespace {

using at::Tensor;

int (*is_capturing)() = nullptr; // of the current stream of the current device
std::atomic<bool> debugging{false};
struct Calls {
  std::atomic<int64_t> multinomial{0}, log{0}, log_{0};
} calls;

// What holds in every kernel here: it works where its input is, whatever device is current, on that device's current
// stream; the backend's guard puts the caller's device back. Operators inside are below autograd already; autocast
// would choose their precision a second time.
struct Scope {
  Scope(const char* name, std::atomic<int64_t>& counter, const Tensor& input) : device_(input.device()) {
    counter.fetch_add(1, std::memory_order_relaxed);
    if (!debugging.load(std::memory_order_relaxed)) return;
    std::string text = c10::str("torchada: aten::", name, " by its override: ", input.scalar_type(), input.sizes(), " on ",
                                input.device(), is_capturing() ? ", captured\n" : "\n");
    std::fputs(text.c_str(), stderr);
  }

 private:
  c10::DeviceGuard device_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_{c10::autocast_dispatch_keyset};
};

// ---- the logarithm ---------------------------------------------------------------------------------------------
// xlogy(1, x) is 1 * log(x), with the same promotion of types, by another kernel.

Tensor complex_log(const Tensor& self) {
  return at::complex(at::xlogy(1.0, at::abs(self)), at::angle(self));
}

Tensor log_kernel(const Tensor& self) {
  Scope scope("log", calls.log, self);
  return self.is_complex() ? complex_log(self) : at::xlogy(1.0, self);
}

Tensor& log_out_kernel(const Tensor& self, Tensor& out) {
  Scope scope("log.out", calls.log, self);
  if (!self.is_complex()) return at::xlogy_out(out, 1.0, self);
  Tensor result = complex_log(self);
  out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor& log_in_place_kernel(Tensor& self) {
  Scope scope("log_", calls.log_, self);
  return self.is_complex() ? self.copy_(complex_log(self)) : at::xlogy_out(self, 1.0, self);
}

// ---- multinomial ---------------------------------------------------------------------------------------------

// What torch's own kernel asks of the probabilities. The host has to wait for the answer, which it cannot in a capture.
void check_probabilities(const Tensor& p) {
  Tensor valid = at::isfinite(p).logical_and_(p.ge(0)).all();
  Tensor possible = p.sum(-1).gt(0).all();
  Tensor state = at::stack({valid, possible}).cpu();
  TORCH_CHECK(state[0].item<bool>(), "probability tensor contains either `inf`, `nan` or element < 0");
  TORCH_CHECK(state[1].item<bool>(), "invalid multinomial distribution (sum of probabilities <= 0)");
}

Tensor draw(const Tensor& p, int64_t count, bool replacement, const std::optional<at::Generator>& generator) {
  if (!replacement || count == 1) {
    // Of independent exponential variables of the rates p, the first to come is i with probability p[i] / sum(p); the
    // order in which they come is a draw without replacement.
    Tensor haste = p.div(at::empty_like(p).exponential_(1, generator));
    return count == 1 ? at::argmax(haste, -1, /*keepdim=*/true) : std::get<1>(at::topk(haste, count, -1));
  }
  Tensor reached = at::cumsum(p, -1);
  auto sizes = p.sizes().vec();
  sizes.back() = count;
  Tensor at_ = at::empty(sizes, p.options()).uniform_(0, 1, generator).mul_(reached.slice(-1, -1));
  Tensor index = at::searchsorted(reached, at_, /*out_int32=*/false, /*right=*/true).clamp_max_(p.size(-1) - 1);
  // A sum in another order may be a rounding off the one before it, which would choose what is impossible.
  return at::where(at::gather(p, -1, index).gt(0), index, at::argmax(p, -1, /*keepdim=*/true));
}

Tensor sample(const Tensor& self, int64_t count, bool replacement, const std::optional<at::Generator>& generator) {
  TORCH_CHECK(self.dim() > 0 && self.dim() <= 2, "prob_dist must be 1 or 2 dim");
  TORCH_CHECK(at::isFloatingType(self.scalar_type()), "multinomial only supports floating-point dtypes for input, got: ",
              self.scalar_type());
  TORCH_CHECK(count > 0, "cannot sample n_sample <= 0 samples");
  int64_t categories = self.size(-1);
  TORCH_CHECK(replacement || count <= categories,
              "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  TORCH_CHECK(categories <= (int64_t(1) << 24), "number of categories cannot exceed 2^24");
  auto sizes = self.sizes().vec();
  sizes.back() = count;
  if (self.dim() == 2 && self.size(0) == 0) return at::empty(sizes, self.options().dtype(at::kLong));
  bool half = self.scalar_type() == at::kHalf || self.scalar_type() == at::kBFloat16;
  Tensor p = half ? self.to(at::kFloat).contiguous() : self.contiguous();
  if (!is_capturing()) check_probabilities(p);
  return draw(p, count, replacement, generator);
}

Tensor multinomial_kernel(const Tensor& self, int64_t count, bool replacement, std::optional<at::Generator> generator) {
  Scope scope("multinomial", calls.multinomial, self);
  return sample(self, count, replacement, generator);
}

Tensor& multinomial_out_kernel(const Tensor& self, int64_t count, bool replacement, std::optional<at::Generator> generator,
                               Tensor& out) {
  Scope scope("multinomial.out", calls.multinomial, self);
  TORCH_CHECK(out.device() == self.device(), "multinomial arguments must have the same device");
  TORCH_CHECK(out.scalar_type() == at::kLong, "multinomial expects Long tensor out, got: ", out.scalar_type());
  Tensor result = sample(self, count, replacement, generator);
  out.resize_(result.sizes());
  return out.copy_(result);
}

// ---- registration --------------------------------------------------------------------------------------------

// torch warns (once per process) that a kernel takes another one's place, which is what this is for.
struct Silence final : c10::WarningHandler {
  void process(const c10::Warning&) override {}
};

std::mutex mutex;
std::map<std::string, torch::Library>& installed() {
  static auto* map = new std::map<std::string, torch::Library>(); // stays to the end: torch may be gone before
  return *map;
}

void install(const std::string& name) {
  std::lock_guard<std::mutex> lock(mutex);
  if (installed().count(name)) return;
  Silence silence;
  c10::WarningUtils::WarningHandlerGuard quiet(&silence);
  torch::Library library(torch::Library::IMPL, "aten", c10::DispatchKey::PrivateUse1, "overrides.cpp", __LINE__);
  if (name == "log") {
    library.impl("log", TORCH_FN(log_kernel));
    library.impl("log.out", TORCH_FN(log_out_kernel));
  } else if (name == "log_") {
    library.impl("log_", TORCH_FN(log_in_place_kernel));
  } else if (name == "multinomial") {
    library.impl("multinomial", TORCH_FN(multinomial_kernel));
    library.impl("multinomial.out", TORCH_FN(multinomial_out_kernel));
  } else {
    TORCH_CHECK(false, "there is no override of aten::", name);
  }
  installed().emplace(name, std::move(library));
}

template <class F>
const char* guarded(F f) {
  thread_local std::string error;
  try {
    f();
    return nullptr;
  } catch (const std::exception& raised) {
    error = raised.what();
    return error.c_str();
  }
}

} // namespace

// For ctypes. A text is an error; it lasts until the thread's next call.
#define OPS_EXPORT extern "C" __attribute__((visibility("default")))

OPS_EXPORT void torchada_ops_setup(int (*capturing)(), int debug) {
  is_capturing = capturing;
  debugging = debug != 0;
}

OPS_EXPORT const char* torchada_ops_install(const char* name) {
  return guarded([&] { install(name); });
}

OPS_EXPORT const char* torchada_ops_remove(const char* name) {
  return guarded([&] {
    std::lock_guard<std::mutex> lock(mutex);
    installed().erase(name);
  });
}

// From now on, asking for the memory of this storage raises `message`.
OPS_EXPORT const char* torchada_ops_forbid(c10::StorageImpl* storage, const char* message) {
  return guarded([&] { storage->release_data_and_set_meta_custom_data_ptr_error_msg_(std::string(message)); });
}

// How often a kernel here was called.
OPS_EXPORT long long torchada_ops_calls(const char* name) {
  std::string which(name);
  if (which == "log") return calls.log;
  if (which == "log_") return calls.log_;
  return which == "multinomial" ? calls.multinomial.load() : -1;
}
