// Autocast for the device: the operator lists that PyTorch gives CUDA, as boxed kernels.
#include "sim.h"

#include <ATen/autocast_mode.h>
#include <torch/library.h>

namespace sim {
namespace {

constexpr auto kDevice = c10::DeviceType::PrivateUse1;

at::Tensor cast(const at::Tensor& tensor, at::ScalarType dtype) {
  return at::autocast::cached_cast(dtype, tensor, kDevice);
}

template <class F>
void map_tensors(torch::jit::Stack* stack, size_t count, F f) {
  for (size_t i = stack->size() - count; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      if (value.toTensor().defined()) value = f(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) list.push_back(f(tensor));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional<at::Tensor>(f(*tensor)) : std::nullopt);
      }
      value = list;
    }
  }
}

// As for at::autocast::cached_cast: float64 is left alone.
bool eligible(const at::Tensor& tensor) {
  return tensor.defined() && tensor.is_privateuseone() && tensor.is_floating_point() && tensor.scalar_type() != at::kDouble;
}

using Handle = c10::OperatorHandle;

void lower(const Handle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  auto dtype = at::autocast::get_autocast_dtype(kDevice);
  map_tensors(stack, op.schema().arguments().size(), [&](const at::Tensor& t) { return cast(t, dtype); });
  op.callBoxed(stack);
}

void full(const Handle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  map_tensors(stack, op.schema().arguments().size(), [&](const at::Tensor& t) { return cast(t, at::kFloat); });
  op.callBoxed(stack);
}

// Asks the operator for a float result where the caller left the dtype open.
void full_by_dtype(const Handle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  const auto& arguments = op.schema().arguments();
  size_t first = stack->size() - arguments.size();
  const c10::IValue& self = (*stack)[first];
  if (self.isTensor() && eligible(self.toTensor())) {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].name() == "dtype" && (*stack)[first + i].isNone()) (*stack)[first + i] = int64_t(at::kFloat);
    }
  }
  op.callBoxed(stack);
}

void promote(const Handle& op, torch::jit::Stack* stack) {
  c10::impl::ExcludeDispatchKeyGuard guard(c10::DispatchKey::AutocastPrivateUse1);
  size_t count = op.schema().arguments().size();
  auto widest = at::autocast::get_autocast_dtype(kDevice);
  map_tensors(stack, count, [&](const at::Tensor& t) {
    if (eligible(t) && t.scalar_type() == at::kFloat) widest = at::kFloat;
    return t;
  });
  map_tensors(stack, count, [&](const at::Tensor& t) { return cast(t, widest); });
  op.callBoxed(stack);
}

void banned(const Handle&, torch::jit::Stack*) {
  TORCH_CHECK(false,
              "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast. Use "
              "binary_cross_entropy_with_logits or BCEWithLogitsLoss, or compute the loss outside autocast.");
}

template <void (*F)(const Handle&, torch::jit::Stack*)>
torch::CppFunction boxed() {
  return torch::CppFunction::makeFromBoxedFunction<F>();
}

std::string op_name(const char* name, const char* overload = nullptr) {
  return overload ? std::string(name) + "." + overload : name;
}

} // namespace
} // namespace sim

namespace {

TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}

#define SIM_NAME1(op) sim::op_name(#op)
#define SIM_NAME2(op, overload) sim::op_name(#op, #overload)
#define SIM_PICK(_1, _2, which, ...) which
#define SIM_NAME(...) SIM_PICK(__VA_ARGS__, SIM_NAME2, SIM_NAME1)(__VA_ARGS__)
#define SIM_LOWER(...) m.impl(SIM_NAME(__VA_ARGS__).c_str(), sim::boxed<&sim::lower>());
#define SIM_FULL(...) m.impl(SIM_NAME(__VA_ARGS__).c_str(), sim::boxed<&sim::full>());
#define SIM_FULL_BY_DTYPE(...) m.impl(SIM_NAME(__VA_ARGS__).c_str(), sim::boxed<&sim::full_by_dtype>());
#define SIM_PROMOTE(...) m.impl(SIM_NAME(__VA_ARGS__).c_str(), sim::boxed<&sim::promote>());

TORCH_LIBRARY_IMPL(aten, AutocastPrivateUse1, m) {
  AT_FORALL_LOWER_PRECISION_FP(SIM_LOWER)
  AT_FORALL_FP32(SIM_FULL)
  AT_FORALL_FP32_SET_OPT_DTYPE(SIM_FULL_BY_DTYPE)
  AT_FORALL_PROMOTE(SIM_PROMOTE)
  // CUDA asks these for a float result by another overload; a float input gives the same.
  m.impl("norm.Scalar", sim::boxed<&sim::full>());
  m.impl("norm.ScalarOpt_dim", sim::boxed<&sim::full>());
  m.impl("binary_cross_entropy", sim::boxed<&sim::banned>());
}

} // namespace
