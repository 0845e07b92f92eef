// How operators of the simulated device run on PyTorch's CPU kernels.
#pragma once

#include "sim.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

namespace sim {

// The tensors of one operator call, seen from the CPU. An alias is a CPU tensor over the bytes of a device
// tensor; device tensors with one storage get aliases with one storage, so that views and in-place
// operators keep their meaning.
class CpuCall {
 public:
  explicit CpuCall(c10::Device device) : device_(device) {}
  at::Tensor alias(const at::Tensor& tensor);
  // A tensor that the CPU computed, on the device: the original of an alias, a view of a device tensor, or
  // the CPU tensor's memory taken over.
  at::Tensor to_device(const at::Tensor& tensor);
  // Carries resized storages and changed sizes over from the aliases to the device tensors.
  void finish();
  c10::Device device() const { return device_; }
  void set_device(c10::Device device) { device_ = device; }

 private:
  struct StoragePair {
    c10::intrusive_ptr<c10::StorageImpl> device, cpu;
  };
  struct TensorPair {
    at::Tensor device, cpu;
  };
  c10::intrusive_ptr<c10::StorageImpl> alias_storage(const c10::Storage& storage);
  c10::intrusive_ptr<c10::StorageImpl> device_storage(const c10::Storage& storage);
  at::Tensor wrap(const at::Tensor& tensor);

  c10::Device device_;
  c10::SmallVector<StoragePair, 4> storages_;
  c10::SmallVector<StoragePair, 2> adopted_;
  c10::SmallVector<TensorPair, 4> tensors_;
};

// What must hold while a CPU kernel works for the device: no autograd, no autocast ...
struct HostScope {
  HostScope();

 private:
  at::AutoDispatchBelowADInplaceOrView below_autograd_;
  c10::impl::ExcludeDispatchKeyGuard no_autocast_;
};

// ... and results in the device's memory.
struct CpuScope : HostScope {
  explicit CpuScope(c10::Device device);

 private:
  RouteCpuAllocations route_;
};

// A CPU tensor in another precision; an undefined one stays undefined.
at::Tensor in_dtype(const at::Tensor& tensor, c10::ScalarType dtype);
// The half precision type of all tensors among the last `count` values; none when they differ or are of another type.
std::optional<c10::ScalarType> common_half(const torch::jit::Stack& stack, size_t count);

// Runs `target` on the CPU with the arguments on the stack; `op` is the operator the user called, for
// messages. The two differ where PyTorch has a hook operator without a CPU kernel.
void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& target, c10::DispatchKeySet keys,
                torch::jit::Stack* stack);

} // namespace sim
