// Operators that cannot go through the fallback: they make, resize, rebind or move device memory, or PyTorch
// has no CPU kernel of that name.
#include "deferred.h"
#include "fallback.h"
#include "profiler.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/_local_scalar_dense.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/resize_native.h>
#include <ATen/ops/resize_ops.h>
#include <ATen/ops/set_native.h>
#include <ATen/ops/view_native.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/autograd_not_implemented_fallback.h>
#include <torch/library.h>

#include <cstring>

namespace sim {
namespace {

using at::Tensor;
using c10::IntArrayRef;
template <class T>
using Optional = std::optional<T>;

c10::DispatchKeySet musa_keys() {
  return c10::DispatchKeySet(c10::DispatchKey::PrivateUse1);
}

void check_factory(Optional<c10::Layout> layout, Optional<bool> pin_memory) {
  // PyTorch makes a plain tensor of this one on every device; its derivatives for nested tensors rely on it.
  bool strided = !layout || *layout == c10::kStrided || *layout == c10::kJagged;
  TORCH_CHECK_NOT_IMPLEMENTED(strided, "the simulated device does not make empty tensors of layout ", *layout);
  TORCH_CHECK(!pin_memory || !*pin_memory, "Only dense CPU tensors can be pinned");
}

// With torch.use_deterministic_algorithms(True) new memory has known contents.
Tensor known(Tensor tensor) {
  auto& context = at::globalContext();
  if (C10_UNLIKELY(context.deterministicAlgorithms() && context.deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
  return tensor;
}

Tensor empty(IntArrayRef size, Optional<c10::ScalarType> dtype, Optional<c10::Layout> layout,
             Optional<c10::Device> device, Optional<bool> pin_memory, Optional<c10::MemoryFormat> format) {
  check_factory(layout, pin_memory);
  DeviceScope scope(normalize(device.value_or(c10::Device(kMusa))).index());
  return known(at::detail::empty_generic(size, device_allocator(), musa_keys(), c10::dtype_or_default(dtype), format));
}

Tensor empty_strided(IntArrayRef size, IntArrayRef stride, Optional<c10::ScalarType> dtype,
                     Optional<c10::Layout> layout, Optional<c10::Device> device, Optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  DeviceScope scope(normalize(device.value_or(c10::Device(kMusa))).index());
  return known(at::detail::empty_strided_generic(size, stride, device_allocator(), musa_keys(), c10::dtype_or_default(dtype)));
}

// Memory for a tensor that is known to be zero: none.
struct NoMemory final : c10::Allocator {
  c10::Device device;
  explicit NoMemory(c10::Device d) : device(d) {}
  static void nothing(void*) {}
  c10::DataPtr allocate(size_t) override { return {nullptr, nullptr, &nothing, device}; }
  c10::DeleterFnPtr raw_deleter() const override { return &nothing; }
  void copy_data(void*, const void*, size_t) const override {}
};

Tensor efficient_zero(IntArrayRef size, Optional<c10::ScalarType> dtype, Optional<c10::Layout> layout,
                      Optional<c10::Device> device, Optional<bool> pin_memory) {
  check_factory(layout, pin_memory);
  NoMemory allocator(normalize(device.value_or(c10::Device(kMusa))));
  auto keys = musa_keys() | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor);
  return at::detail::empty_generic(size, &allocator, keys, c10::dtype_or_default(dtype), std::nullopt);
}

// ---- shape and storage -------------------------------------------------------------------------------
// PyTorch's CPU versions work on any host memory; they only need the device the memory is to come from.

const Tensor& resize_(const Tensor& self, IntArrayRef size, Optional<c10::MemoryFormat> format) {
  DeviceScope scope(self.device().index());
  if (may_defer()) { // PyTorch's version would move the content now
    size_t bytes = at::detail::computeStorageNbytesContiguous(size, self.dtype().itemsize(), size_t(self.storage_offset()));
    if (bytes > self.storage().nbytes()) resize_storage(self.storage(), bytes);
  }
  return at::native::resize_(self, size, format);
}

Tensor& set_source_storage_offset_(Tensor& self, c10::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  DeviceScope scope(self.device().index());
  return at::native::set_storage_cpu_(self, std::move(source), offset, size, stride);
}

Tensor& set_source_storage_(Tensor& self, c10::Storage source) {
  int64_t size = int64_t(source.nbytes() / self.dtype().itemsize());
  return set_source_storage_offset_(self, std::move(source), 0, {size}, {});
}

Tensor& set_source_tensor_(Tensor& self, const Tensor& source) {
  DeviceScope scope(self.device().index());
  return at::native::set_tensor_(self, source);
}

Tensor& set_(Tensor& self) {
  DeviceScope scope(self.device().index());
  auto storage = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), 0,
                                                       device_allocator()->allocate(0), device_allocator(), true);
  return set_source_storage_offset_(self, c10::Storage(std::move(storage)), 0, {0}, {});
}

void record_stream_op(Tensor& self, c10::Stream stream) {
  record_stream(self.storage().data_ptr(), stream);
}

// ---- copies ------------------------------------------------------------------------------------------

// As a profiler of such devices shows it.
void count_copy(bool from_musa, bool to_musa, int64_t bytes) {
  Counters& c = counters();
  if (from_musa && to_musa) {
    count(c.device_to_device);
    count(c.device_to_device_bytes, bytes);
  } else if (to_musa) {
    count(c.host_to_device);
    count(c.host_to_device_bytes, bytes);
  } else {
    count(c.device_to_host);
    count(c.device_to_host_bytes, bytes);
  }
}

Tensor copy_from(const Tensor& self, const Tensor& dst, bool non_blocking) {
  bool from_musa = self.device().type() == kMusa, to_musa = dst.device().type() == kMusa;
  if (!dst.is_sparse() && dst.numel() == 0) return dst;
  int64_t bytes = dst.is_sparse() ? 0 : int64_t(dst.numel() * dst.element_size());
  c10::Device device = to_musa ? dst.device() : self.device();
  if (!may_defer() || !capture_of(current_stream(device.index()))) count_copy(from_musa, to_musa, bytes);
  if (may_defer()) {
    auto plain = [](const Tensor& t) { return t.layout() == c10::kStrided && !t.is_nested() && !t.is_quantized(); };
    if (plain(self) && plain(dst)) {
      deferred_copy(self, dst, non_blocking);
      return dst;
    }
    before_host_read(device, "a copy of tensors that are not strided");
  }
  if (!non_blocking && from_musa != to_musa) count(counters().host_syncs); // as CUDA, which waits after every such copy
  CpuCall call(device);
  Tensor from = call.alias(self), to = call.alias(dst);
  auto span = make_span(SpanKind::memcpy, [&] { return copy_name(self, dst); }, current_stream(device.index()), bytes);
  {
    SpanTimer timer(span);
    CpuScope cpu(device);
    at::_ops::copy_::call(to, from, false);
  }
  call.finish();
  return dst;
}

Tensor copy_from_and_resize(const Tensor& self, const Tensor& dst) {
  at::_ops::resize_::call(dst, self.sym_sizes(), std::nullopt);
  return copy_from(self, dst, false);
}

// Lets `x.data = y` and nn.Module.cuda() change a tensor's device in place, as with CUDA; the vendor's build of torch
// lists its device among those that may.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  return self.layout() == from.layout() && self.is_nested() == from.is_nested();
}

c10::Scalar local_scalar_dense(const Tensor& self) {
  before_host_read(self.device(), "a value was read on the host");
  count(counters().host_syncs);
  count(counters().device_to_host);
  CpuCall call(self.device());
  Tensor cpu = call.alias(self);
  CpuScope scope(self.device());
  return at::_local_scalar_dense(cpu);
}

// ---- convolution: PyTorch's own, under the names it leaves to backends ---------------------------------

c10::OperatorHandle find_op(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

void convolution(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  static const c10::OperatorHandle target = find_op("aten::convolution");
  run_on_cpu(op, target, keys, stack);
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(const Tensor& grad, const Tensor& input, const Tensor& weight,
                                                        IntArrayRef stride, IntArrayRef padding, IntArrayRef dilation,
                                                        bool transposed, IntArrayRef output_padding, int64_t groups,
                                                        std::array<bool, 3> wanted) {
  auto symbolic = [](IntArrayRef values) { return std::vector<c10::SymInt>(values.begin(), values.end()); };
  std::vector<c10::SymInt> bias{c10::SymInt(transposed ? weight.size(1) * groups : weight.size(0))};
  return at::_ops::convolution_backward::call(grad, input, weight, c10::OptionalArrayRef<c10::SymInt>(bias),
                                              symbolic(stride), symbolic(padding), symbolic(dilation), transposed,
                                              symbolic(output_padding), c10::SymInt(groups), wanted);
}

// As PyTorch's CPU version, which draws from the CPU's default generator.
std::tuple<Tensor, Tensor> dropout(const Tensor& input, double p, Optional<bool> train) {
  auto bools = input.options().dtype(c10::kBool);
  if (input.numel() == 0) return {input.clone(), at::empty_like(input, bools)};
  if (train && !*train) return {input.clone(), at::ones_like(input, bools)};
  double kept = 1 - p, scale = kept == 0 ? 0 : 1 / kept;
  Tensor mask = at::empty_like(input, bools).bernoulli_(kept, hidden_generator());
  return {input.mul(mask).mul_(scale), mask};
}

// ---- recurrent cells -----------------------------------------------------------------------------------

Tensor gates_of(const Tensor& input, const Tensor& hidden, const Optional<Tensor>& input_bias, const Optional<Tensor>& hidden_bias) {
  Tensor gates = input + hidden;
  if (input_bias && input_bias->defined()) gates = gates + *input_bias;
  if (hidden_bias && hidden_bias->defined()) gates = gates + *hidden_bias;
  return gates;
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell(const Tensor& input, const Tensor& hidden, const Tensor& cx,
                                             const Optional<Tensor>& input_bias, const Optional<Tensor>& hidden_bias) {
  auto parts = gates_of(input, hidden, input_bias, hidden_bias).chunk(4, 1);
  Tensor i = parts[0].sigmoid(), f = parts[1].sigmoid(), g = parts[2].tanh(), o = parts[3].sigmoid();
  Tensor cy = f * cx + i * g;
  Tensor hy = o * cy.tanh();
  return {hy, cy, at::cat({i, f, g, o}, 1)};
}

std::tuple<Tensor, Tensor, Tensor> lstm_cell_backward(const Optional<Tensor>& grad_hy, const Optional<Tensor>& grad_cy,
                                                      const Tensor& cx, const Tensor& cy, const Tensor& workspace,
                                                      bool has_bias) {
  bool has_hy = grad_hy && grad_hy->defined(), has_cy = grad_cy && grad_cy->defined();
  if (!has_hy && !has_cy) return {};
  auto parts = workspace.chunk(4, 1);
  const Tensor &i = parts[0], &f = parts[1], &g = parts[2], &o = parts[3];
  Tensor t = cy.tanh();
  Tensor through_cell = has_hy ? *grad_hy * o * (1 - t * t) : *grad_cy;
  if (has_hy && has_cy) through_cell = through_cell + *grad_cy;
  Tensor grad_o = has_hy ? *grad_hy * t * o * (1 - o) : at::zeros_like(o);
  Tensor gates = at::cat({through_cell * g * i * (1 - i), through_cell * cx * f * (1 - f), through_cell * i * (1 - g * g), grad_o}, 1);
  return {gates, through_cell * f, has_bias ? gates.sum(0) : Tensor()};
}

std::tuple<Tensor, Tensor> gru_cell(const Tensor& input_gates, const Tensor& hidden_gates, const Tensor& hx,
                                    const Optional<Tensor>& input_bias, const Optional<Tensor>& hidden_bias) {
  Tensor input = input_bias && input_bias->defined() ? input_gates + *input_bias : input_gates;
  Tensor hidden = hidden_bias && hidden_bias->defined() ? hidden_gates + *hidden_bias : hidden_gates;
  auto in = input.chunk(3, 1), h = hidden.chunk(3, 1);
  Tensor r = (in[0] + h[0]).sigmoid(), z = (in[1] + h[1]).sigmoid(), n = (in[2] + r * h[2]).tanh();
  return {n + z * (hx - n), at::cat({r, z, n, hx, h[2]}, 1)};
}

std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gru_cell_backward(const Tensor& grad, const Tensor& workspace, bool has_bias) {
  auto parts = workspace.chunk(5, 1);
  const Tensor &r = parts[0], &z = parts[1], &n = parts[2], &hx = parts[3], &hn = parts[4];
  Tensor grad_z = grad * (hx - n) * z * (1 - z);
  Tensor grad_n = grad * (1 - z) * (1 - n * n);
  Tensor grad_r = grad_n * hn * r * (1 - r);
  Tensor input = at::cat({grad_r, grad_z, grad_n}, 1), hidden = at::cat({grad_r, grad_z, grad_n * r}, 1);
  return {input, hidden, grad * z, has_bias ? input.sum(0) : Tensor(), has_bias ? hidden.sum(0) : Tensor()};
}

} // namespace

std::string copy_name(const Tensor& from, const Tensor& to) {
  bool from_musa = from.device().type() == kMusa, to_musa = to.device().type() == kMusa;
  if (from_musa && to_musa) return from.device() == to.device() ? "Memcpy DtoD (Device -> Device)" : "Memcpy PtoP (Device -> Device)";
  const Tensor& host = from_musa ? to : from;
  std::string kind = host.layout() == c10::kStrided && is_pinned(host.const_data_ptr()) ? "Pinned" : "Pageable";
  return to_musa ? "Memcpy HtoD (" + kind + " -> Device)" : "Memcpy DtoH (Device -> " + kind + ")";
}

// A device thread of autograd may still hold Python objects of the last backward pass when that pass is
// reported as done. If the interpreter ends just then, the thread takes the GIL of a dead interpreter and
// the process aborts. A device thread works in order, so one more pass without Python objects is a barrier.
void drain_autograd() {
  if (!autograd_threads_started() || in_bad_fork()) return;
  for (int i = 0; i < device_count(); ++i) {
    Tensor x = at::ones({1}, at::TensorOptions().device(c10::Device(kMusa, c10::DeviceIndex(i)))).requires_grad_(true);
    x.mul(2).sum().backward();
  }
}

} // namespace sim

namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(sim::empty));
  m.impl("empty_strided", TORCH_FN(sim::empty_strided));
  m.impl("_efficientzerotensor", TORCH_FN(sim::efficient_zero));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_tensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("resize_", TORCH_FN(sim::resize_));
  m.impl("set_.source_Storage", TORCH_FN(sim::set_source_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(sim::set_source_storage_offset_));
  m.impl("set_.source_Tensor", TORCH_FN(sim::set_source_tensor_));
  m.impl("set_", TORCH_FN(sim::set_));
  m.impl("record_stream", TORCH_FN(sim::record_stream_op));
  m.impl("_copy_from", TORCH_FN(sim::copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(sim::copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(sim::local_scalar_dense));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(sim::has_compatible_shallow_copy_type));
  m.impl("convolution_overrideable", torch::CppFunction::makeFromBoxedFunction<&sim::convolution>());
  m.impl("convolution_backward_overrideable", SIM_BODY(sim::convolution_backward));
  m.impl("native_dropout", SIM_BODY(sim::dropout));
  m.impl("_thnn_fused_lstm_cell", SIM_BODY(sim::lstm_cell));
  m.impl("_thnn_fused_lstm_cell_backward_impl", SIM_BODY(sim::lstm_cell_backward));
  m.impl("_thnn_fused_gru_cell", SIM_BODY(sim::gru_cell));
  m.impl("_thnn_fused_gru_cell_backward", SIM_BODY(sim::gru_cell_backward));
}

// What moves or resizes the memory of quantized tensors.
TORCH_LIBRARY_IMPL(aten, QuantizedPrivateUse1, m) {
  m.impl("_copy_from", TORCH_FN(sim::copy_from));
  m.impl("as_strided", TORCH_FN(at::native::as_strided_qtensorimpl));
  m.impl("view", TORCH_FN(at::native::view));
  m.impl("_reshape_alias", TORCH_FN(at::native::_reshape_alias));
  m.impl("set_.source_Storage", TORCH_FN(sim::set_source_storage_));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(at::native::set_storage_quantized_));
  m.impl("set_.source_Tensor", TORCH_FN(sim::set_source_tensor_));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(sim::has_compatible_shallow_copy_type));
}

// torch 2.7 has no fallback at this key, which torch's own devices have: operators without a derivative, all custom ones
// among them, would not be found.
TORCH_LIBRARY_IMPL(_, AutogradPrivateUse1, m) {
  if (!c10::Dispatcher::singleton().hasBackendFallbackForDispatchKey(c10::DispatchKey::AutogradPrivateUse1)) {
    m.fallback(torch::autograd::basicAutogradNotImplementedFallback());
  }
}

// copy_() brings the conjugate and negative bits here; the CPU copy honours them. Materialising them first
// would call copy_() again, without end.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}
TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", torch::CppFunction::makeFallthrough());
}

} // namespace
