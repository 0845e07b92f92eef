// How operators of the simulated device run on PyTorch's CPU kernels.
#pragma once

#include "sim.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/MT19937RNGEngine.h>
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

// As a profiler shows it: "add_Tensor_kernel" for aten::add.Tensor.
std::string kernel_name(const c10::OperatorHandle& op);
std::string copy_name(const at::Tensor& from, const at::Tensor& to); // kernels.cpp
at::Generator cpu_generator(const at::mt19937& engine);

// Computes an operator on the arguments on the stack and replaces them by the results, in ATen calls that work on any
// device.
using Body = void (*)(const c10::OperatorHandle& op, torch::jit::Stack* stack);

// The generator a body draws from whose operator has no such argument; undefined while only shapes are wanted.
const at::Generator& hidden_generator();
struct HiddenGenerator {
  explicit HiddenGenerator(const at::mt19937& engine);
  ~HiddenGenerator();
  HiddenGenerator(const HiddenGenerator&) = delete;
  HiddenGenerator& operator=(const HiddenGenerator&) = delete;
};

// Runs an operator of the device. On the CPU `body` computes it, or without one the CPU kernel of `target`; `op` is
// the operator the user called, for checks and messages. The two differ where PyTorch has a hook operator without a
// CPU kernel.
void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& target, c10::DispatchKeySet keys,
                torch::jit::Stack* stack, Body body = nullptr);

// A function of ATen calls as a kernel of the device: m.impl("name", SIM_BODY(function)).
template <class Function>
void call_body(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  static const c10::KernelFunction kernel = c10::KernelFunction::makeFromUnboxedFunction(Function());
  kernel.callBoxed(op, c10::DispatchKeySet(), stack);
}
template <class Function>
void run_body(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_on_cpu(op, op, keys, stack, &call_body<Function>);
}
#define SIM_BODY(function) torch::CppFunction::makeFromBoxedFunction<&sim::run_body<TORCH_FN_TYPE(function)>>()

} // namespace sim
