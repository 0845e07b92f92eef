// Operators in which torch_musa has known defects: each shows its defect where the version has it, and computes
// otherwise. Which version has which: torchada/simulator/profiles.py.
#include "defects.h"
#include "fallback.h"
#include "work.h"

#include <ATen/ops/addmm.h>
#include <ATen/ops/baddbmm.h>
#include <ATen/ops/bmm.h>
#include <ATen/ops/mm.h>
#include <torch/library.h>

namespace sim {
namespace {

using at::Tensor;
using c10::ScalarType;

// log_ has no kernel for float64.
void log_in_place(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const Tensor& self = stack->back().toTensor();
  TORCH_CHECK_NOT_IMPLEMENTED(!defect(Defect::float64_log_inplace) || self.scalar_type() != at::kDouble, "Could not run '",
                              op.operator_name(), "' with arguments from the 'musa' backend: this version of torch_musa "
                              "has no kernel of it for dtype Double. Use x.copy_(x.log()), or a version that has it.");
  run_on_cpu(op, op, keys, stack);
}

// The product of two boolean tensors waits for the device. isfinite is made of it.
void multiply(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  if (defect(Defect::bool_mul_sync)) {
    const Tensor& self = (*stack)[stack->size() - op.schema().arguments().size()].toTensor();
    const Tensor& other = (*stack)[stack->size() - op.schema().arguments().size() + 1].toTensor();
    if (self.scalar_type() == at::kBool && other.scalar_type() == at::kBool) {
      synchronize_stream(current_stream((self.device().type() == kMusa ? self : other).device().index()));
    }
  }
  run_on_cpu(op, op, keys, stack);
}

// ---- matrix products with a result of another dtype, which PyTorch has for CUDA only ----------------------

void check_out_dtype(const Tensor& a, const Tensor& b, ScalarType dtype) {
  auto given = a.scalar_type();
  TORCH_CHECK(given == b.scalar_type(), "input dtypes must be the same");
  TORCH_CHECK(dtype == given || (dtype == at::kFloat && (given == at::kHalf || given == at::kBFloat16)),
              "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

Tensor broken_or(Tensor result) {
  return defect(Defect::mm_out_dtype) ? result.zero_() : result;
}

#if SIM_TORCH_AT_LEAST(2, 8) // the operators are new there
Tensor mm_dtype(const Tensor& a, const Tensor& b, ScalarType dtype) {
  check_out_dtype(a, b, dtype);
  return broken_or(a.to(dtype).mm(b.to(dtype)));
}
Tensor bmm_dtype(const Tensor& a, const Tensor& b, ScalarType dtype) {
  check_out_dtype(a, b, dtype);
  return broken_or(a.to(dtype).bmm(b.to(dtype)));
}
Tensor addmm_dtype(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType dtype, const c10::Scalar& beta,
                   const c10::Scalar& alpha) {
  check_out_dtype(a, b, dtype);
  return self.to(dtype).addmm(a.to(dtype), b.to(dtype), beta, alpha);
}
Tensor baddbmm_dtype(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType dtype, const c10::Scalar& beta,
                     const c10::Scalar& alpha) {
  check_out_dtype(a, b, dtype);
  return self.to(dtype).baddbmm(a.to(dtype), b.to(dtype), beta, alpha);
}

Tensor& into(Tensor& out, const Tensor& result, ScalarType dtype) {
  TORCH_CHECK(out.scalar_type() == dtype, "out_dtype must be the same as the dtype of the provided out tensor");
  TORCH_CHECK(out.device() == result.device(), "Expected out tensor to be on ", result.device(), ", but got ", out.device());
  if (out.sizes() != result.sizes()) out.resize_(result.sizes());
  return out.copy_(result);
}

Tensor& mm_dtype_out(const Tensor& a, const Tensor& b, ScalarType dtype, Tensor& out) {
  return into(out, at::mm(a, b, dtype), dtype);
}
Tensor& bmm_dtype_out(const Tensor& a, const Tensor& b, ScalarType dtype, Tensor& out) {
  return into(out, at::bmm(a, b, dtype), dtype);
}
Tensor& addmm_dtype_out(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType dtype, const c10::Scalar& beta,
                        const c10::Scalar& alpha, Tensor& out) {
  return into(out, at::addmm(self, a, b, dtype, beta, alpha), dtype);
}
Tensor& baddbmm_dtype_out(const Tensor& self, const Tensor& a, const Tensor& b, ScalarType dtype,
                          const c10::Scalar& beta, const c10::Scalar& alpha, Tensor& out) {
  return into(out, at::baddbmm(self, a, b, dtype, beta, alpha), dtype);
}
#endif

} // namespace
} // namespace sim

namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("log_", torch::CppFunction::makeFromBoxedFunction<&sim::log_in_place>());
  m.impl("mul.Tensor", torch::CppFunction::makeFromBoxedFunction<&sim::multiply>());
  m.impl("mul_.Tensor", torch::CppFunction::makeFromBoxedFunction<&sim::multiply>());
  m.impl("mul.out", torch::CppFunction::makeFromBoxedFunction<&sim::multiply>());
#if SIM_TORCH_AT_LEAST(2, 8)
  m.impl("mm.dtype", SIM_BODY(sim::mm_dtype));
  m.impl("mm.dtype_out", TORCH_FN(sim::mm_dtype_out));
  m.impl("bmm.dtype", SIM_BODY(sim::bmm_dtype));
  m.impl("bmm.dtype_out", TORCH_FN(sim::bmm_dtype_out));
  m.impl("addmm.dtype", SIM_BODY(sim::addmm_dtype));
  m.impl("addmm.dtype_out", TORCH_FN(sim::addmm_dtype_out));
  m.impl("baddbmm.dtype", SIM_BODY(sim::baddbmm_dtype));
  m.impl("baddbmm.dtype_out", TORCH_FN(sim::baddbmm_dtype_out));
#endif
}

} // namespace
