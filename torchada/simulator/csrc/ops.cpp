// Operators whose general kernel in PyTorch asks for a device it knows by name.
#include "fallback.h"

#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_fused_sdp_choice_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_quantized_native.h>
#include <torch/library.h>

namespace sim {
namespace {

void on_cpu(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_on_cpu(op, op, keys, stack);
}

// Which attention to use: the CPU's rules, so a fused one where the CPU has it and the user allows it. Decided on the
// host from shapes and flags, which the tensors of a compiler have too; nothing is launched.
int64_t sdp_choice(const at::Tensor& query, const at::Tensor& key, const at::Tensor& value,
                   const std::optional<at::Tensor>& mask, double dropout, bool causal, std::optional<double> scale,
                   bool gqa) {
  return at::native::_fused_sdp_choice_cpp(query, key, value, mask, dropout, causal, scale, gqa);
}

// With scales of the device and the CPU as the device argument: part of a copy to the CPU.
void empty_per_channel(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  constexpr size_t kArguments = 9, kScales = 1, kZeroPoints = 2, kDevice = 6;
  size_t first = stack->size() - kArguments;
  const c10::IValue& device = (*stack)[first + kDevice];
  if (!device.isDevice() || device.toDevice().type() == kMusa) return run_on_cpu(op, op, keys, stack);
  for (size_t i : {kScales, kZeroPoints}) (*stack)[first + i] = (*stack)[first + i].toTensor().to(device.toDevice());
  op.callBoxed(stack);
}

} // namespace
} // namespace sim

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &sim::sdp_choice)
} // namespace at::native

namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  for (const char* name : {"mode.values", "conj_physical_"}) {
    m.impl(name, torch::CppFunction::makeFromBoxedFunction<&sim::on_cpu>());
  }
}

TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  // By quantizer and device argument; so a quantized tensor comes to another device as well.
  m.impl("empty_like", TORCH_FN(at::native::empty_like_quantized));
  m.impl("empty_quantized", TORCH_FN(at::native::empty_quantized));
  m.impl("_empty_per_channel_affine_quantized", torch::CppFunction::makeFromBoxedFunction<&sim::empty_per_channel>());
}

} // namespace
