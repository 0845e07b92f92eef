// Operators and copies that run later.
//
// The host must know the results of an operator before it runs: their shapes come from the operator's Meta kernel,
// their memory from the allocator at once. What is queued is the call of the CPU kernel on tensors over raw memory.
#include "deferred.h"

#include "defects.h"
#include "generator.h"
#include "memory.h"
#include "python.h"

#include <ATen/native/Resize.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/conj_physical_ops.h>
#include <ATen/ops/copy_ops.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/InferenceMode.h>
#include <pybind11/pybind11.h>

#include <cstring>
#include <unordered_set>

namespace sim {

namespace {

using at::Tensor;
using c10::IValue;
using torch::jit::Stack;

bool on_device(const Tensor& tensor) {
  return tensor.defined() && tensor.device().type() == kMusa;
}
bool is_plain(const Tensor& tensor) {
  return tensor.layout() == c10::kStrided && !tensor.is_nested() && !tensor.is_quantized();
}

void nothing(void*) {}

// What stands for the device tensors of one call.
enum class Stand {
  host,    // CPU tensors over the same bytes
  meta,    // shapes only
  scratch, // CPU tensors of zeros, for operators that have no Meta kernel
};

class Twins {
 public:
  explicit Twins(Stand stand) : stand_(stand) {}

  struct Pair {
    Tensor device, twin;
  };
  const std::vector<Pair>& tensors() const { return tensors_; }

  Tensor of(const Tensor& tensor) {
    if (!on_device(tensor)) return tensor;
    for (const Pair& pair : tensors_) {
      if (pair.device.is_same(tensor)) return pair.twin;
    }
    auto key = stand_ == Stand::meta ? c10::DispatchKey::Meta : c10::DispatchKey::CPU;
    c10::DispatchKeySet keys(key);
    for (auto bit : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor}) {
      if (tensor.key_set().has(bit)) keys = keys.add(bit);
    }
    auto twin = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage_of(tensor.storage())), keys, tensor.dtype());
    auto* impl = twin.unsafeGetTensorImpl();
    impl->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
    if (tensor.requires_grad()) impl->set_requires_grad(true);
    tensors_.push_back({tensor, twin});
    return twin;
  }

  // The device tensor a result is: one of the arguments, or a view of one; undefined when it is new.
  Tensor origin(const Tensor& result) const {
    for (const Pair& pair : tensors_) {
      if (pair.twin.is_same(result)) return pair.device;
    }
    for (const Pair& pair : tensors_) {
      if (!result.has_storage() || !pair.twin.storage().is_alias_of(result.storage())) continue;
      auto view = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(pair.device.storage()),
                                                           pair.device.key_set(), result.dtype());
      view.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides(), result.storage_offset());
      return view;
    }
    return {};
  }

 private:
  c10::intrusive_ptr<c10::StorageImpl> storage_of(const c10::Storage& storage) {
    auto* impl = storage.unsafeGetStorageImpl();
    for (auto& [device, twin] : storages_) {
      if (device == impl) return twin;
    }
    size_t bytes = impl->nbytes();
    c10::DataPtr pointer;
    c10::Allocator* allocator = c10::GetAllocator(c10::kCPU);
    if (stand_ == Stand::host) {
      impl->data(); // raises where torch has forbidden the access
      // Not resizable: a kernel that wanted other memory than the host planned must fail, and not go unnoticed.
      pointer = c10::DataPtr(impl->_mutable_data_ptr_no_checks().get(), nullptr, &nothing, c10::Device(c10::kCPU));
    } else if (stand_ == Stand::meta) {
      pointer = c10::DataPtr(nullptr, c10::Device(c10::kMeta));
      allocator = c10::GetAllocator(c10::kMeta);
    } else {
      pointer = allocator->allocate(bytes);
      if (bytes) std::memset(pointer.get(), 0, bytes);
    }
    auto twin = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer),
                                                      allocator, /*resizable=*/stand_ != Stand::host);
    storages_.emplace_back(impl, twin);
    return twin;
  }

  Stand stand_;
  std::vector<Pair> tensors_;
  std::vector<std::pair<c10::StorageImpl*, c10::intrusive_ptr<c10::StorageImpl>>> storages_;
};

template <class F>
void replace_tensors(IValue& value, F f) {
  if (value.isTensor()) {
    value = f(value.toTensor());
  } else if (value.isTensorList()) {
    c10::List<Tensor> list;
    for (const Tensor& tensor : value.toTensorList()) list.push_back(f(tensor));
    value = list;
  } else if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> list;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      list.push_back(tensor ? std::optional<Tensor>(f(*tensor)) : std::nullopt);
    }
    value = list;
  }
}

template <class F>
void each_tensor(const IValue& value, F f) {
  if (value.isTensor()) {
    f(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorList()) f(tensor);
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor) f(*tensor);
    }
  }
}

void compute(const c10::OperatorHandle& target, Body body, c10::DispatchKey key, Stack* stack) {
  if (body) {
    body(target, stack);
  } else {
    target.redispatchBoxed(c10::DispatchKeySet(key), stack);
  }
}

// ---- what a call gives ---------------------------------------------------------------------------------

// The operator's results for arguments that stand for the real ones, on the stack in their place.
std::optional<Stack> try_compute(const DeferredOp& call, Twins& twins, Stand stand, const Stack& arguments) {
  Stack stack = arguments;
  c10::Device device(stand == Stand::meta ? c10::kMeta : c10::kCPU);
  for (size_t i = 0; i < stack.size(); ++i) {
    IValue& value = stack[i];
    if (value.isDevice()) {
      value = device;
    } else if (int(i) == call.generator) {
      value = stand == Stand::meta ? IValue() : IValue(cpu_generator(at::mt19937()));
    } else {
      replace_tensors(value, [&](const Tensor& tensor) { return twins.of(tensor); });
    }
  }
  HostScope host;
  compute(call.target, call.body, stand == Stand::meta ? c10::DispatchKey::Meta : call.cpu_key, &stack);
  return stack;
}

std::unordered_set<const c10::FunctionSchema*>& without_meta() {
  thread_local std::unordered_set<const c10::FunctionSchema*> names;
  return names;
}

enum class PythonError { none, missing, foreign };

PythonError classify(PyObject* raised) {
  // KeyboardInterrupt and the like have nothing to do with the kernel they arrive in.
  if (!PyErr_GivenExceptionMatches(raised, PyExc_Exception)) return PythonError::foreign;
  return PyErr_GivenExceptionMatches(raised, PyExc_NotImplementedError) ? PythonError::missing : PythonError::none;
}

// What a Meta kernel in Python has raised: in the exception, or left as Python's error, which is cleared unless foreign.
PythonError take_python_error(const std::exception& error) {
  if (!Py_IsInitialized()) return PythonError::none;
  pybind11::gil_scoped_acquire gil;
  if (auto* raised = dynamic_cast<const pybind11::error_already_set*>(&error)) return classify(raised->type().ptr());
  PyObject* raised = PyErr_Occurred();
  PythonError kind = raised ? classify(raised) : PythonError::none;
  if (kind != PythonError::foreign) PyErr_Clear();
  return kind;
}

// Their Meta kernels tell what CUDA's kernels give: statistics of other sizes and types than the CPU's kernels, which
// compute here and take them again in the backward pass. None of these results depends on values.
bool meta_is_of_cuda(const std::string& op) {
  static const auto* names = new std::unordered_set<std::string>{
      "aten::native_batch_norm",       "aten::_native_batch_norm_legit", "aten::_native_batch_norm_legit_no_training",
      "aten::_batch_norm_with_update", "aten::native_layer_norm",        "aten::_embedding_bag",
      "aten::_embedding_bag_forward_only"};
  return names->count(op) != 0;
}

std::optional<Stack> learn(const DeferredOp& call, std::optional<Twins>& twins, const Stack& arguments) {
  const auto* schema = &call.target.schema();
  if (meta_is_of_cuda(schema->name())) {
    twins.emplace(Stand::scratch);
    return try_compute(call, *twins, Stand::scratch, arguments);
  }
  twins.emplace(Stand::meta);
  if (without_meta().count(schema)) return std::nullopt;
  try {
    return try_compute(call, *twins, Stand::meta, arguments);
  } catch (const c10::NotImplementedError&) {
    without_meta().insert(schema);
  } catch (const std::exception& error) {
    // Wrong arguments: the CPU kernel says so in better words. Or a kernel in Python that knows no such operator.
    PythonError kind = take_python_error(error);
    if (kind == PythonError::foreign) throw;
    if (kind == PythonError::missing) without_meta().insert(schema);
  }
  return std::nullopt;
}

// Results that `output_mask` does not ask for: some Meta kernels give them, and the CPU's kernels do not.
void drop_masked(const c10::FunctionSchema& schema, const Stack& arguments, Stack& results) {
  auto mask = schema.argumentIndexWithName("output_mask");
  if (!mask || !arguments[size_t(*mask)].isBoolList()) return;
  auto wanted = arguments[size_t(*mask)].toBoolList();
  if (wanted.size() != results.size()) return;
  for (size_t i = 0; i < results.size(); ++i) {
    if (!wanted[i] && results[i].isTensor()) results[i] = Tensor();
  }
}

// Arguments whose sizes the operator changed (out=) change on the device.
void apply_sizes(const Twins& twins) {
  for (const auto& [device, twin] : twins.tensors()) {
    if (device.sizes() == twin.sizes() && device.strides() == twin.strides()) continue;
    size_t bytes = twin.storage().nbytes();
    if (bytes > device.storage().nbytes()) resize_storage(device.storage(), bytes);
    device.unsafeGetTensorImpl()->set_sizes_and_strides(twin.sizes(), twin.strides(), twin.storage_offset());
  }
}

// ---- the call that runs later ------------------------------------------------------------------------------

// linalg_lu_solve conjugates its out= lazily. The device's tensor was planned without, so that it is done in memory.
void conjugate_now(const Tensor& tensor, bool lazy) {
  if (!tensor.defined() || tensor.is_conj() == lazy) return;
  tensor._set_conj(lazy);
  at::_ops::conj_physical_::call(const_cast<Tensor&>(tensor));
}

struct Call {
  c10::OperatorHandle target;
  Body body;
  c10::DispatchKey key;
  Stack arguments;
  std::vector<Tensor> results; // where they go; undefined for one that is an argument, or nothing
  std::optional<c10::ScalarType> half;
  int generator;
  std::optional<RngTicket> numbers;
  bool grad_mode;

  void operator()() const {
    c10::InferenceMode no_inference(false);
    at::AutoGradMode grad(grad_mode);
    HostScope host;
    Stack stack = arguments;
    std::vector<bool> lazy;
    for (const IValue& value : arguments) lazy.push_back(value.isTensor() && value.toTensor().defined() && value.toTensor().is_conj());
    if (half) {
      for (IValue& value : stack) {
        if (value.isTensor()) value = in_dtype(value.toTensor(), c10::kFloat);
      }
    }
    std::optional<HiddenGenerator> hidden;
    if (numbers && generator < 0) hidden.emplace(numbers->engine());
    if (numbers && generator >= 0) stack[size_t(generator)] = cpu_generator(numbers->engine());
    compute(target, body, key, &stack);
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (arguments[i].isTensor()) conjugate_now(arguments[i].toTensor(), lazy[i]);
    }
    size_t next = 0;
    for (const IValue& value : stack) {
      each_tensor(value, [&](const Tensor& result) {
        TORCH_CHECK(next < results.size(), "the CPU kernel gave more results than its Meta kernel");
        const Tensor& to = results[next++];
        if (!to.defined() || to.is_same(result)) return;
        TORCH_CHECK(result.defined() && result.sizes() == to.sizes(), "the CPU kernel gave ",
                    result.defined() ? c10::str(result.sizes()) : "nothing", " where the host expects ", to.sizes());
        TORCH_CHECK(half || result.scalar_type() == to.scalar_type(), "the CPU kernel gave ", result.scalar_type(),
                    " where the host expects ", to.scalar_type());
        at::_ops::copy_::call(const_cast<Tensor&>(to), result, false);
      });
    }
  }
};

bool only_scalars(const c10::FunctionSchema& schema) {
  if (schema.returns().empty()) return false;
  for (const c10::Argument& result : schema.returns()) {
    auto kind = result.type()->kind();
    if (kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType || kind == c10::TypeKind::OptionalType) return false;
  }
  return true;
}

bool has_capture_defect(const std::string& op) {
  if (op == "aten::multinomial") return defect(Defect::multinomial_capture);
  if (op == "aten::log" || op == "aten::log_") return defect(Defect::log_capture);
  return false;
}

} // namespace

Tensor unowned_alias(const Tensor& tensor) {
  TORCH_CHECK(is_plain(tensor), "expected a strided tensor");
  return Twins(Stand::host).of(tensor);
}

void resize_storage(const c10::Storage& storage, size_t bytes) {
  at::native::resize_bytes_nocuda(storage, c10::SymInt(int64_t(bytes)));
}

void before_host_read(c10::Device device, const char* what) {
  if (!may_defer()) return;
  c10::Stream stream = current_stream(device.index());
  if (auto capture = capture_of(stream)) refuse_in_capture(capture, what);
  wait_stream(stream);
}

bool defer(const DeferredOp& call, Stack* stack) {
  c10::Stream stream = current_stream(call.device.index());
  Route how = route(stream);
  if (how == Route::now) return false;
  const c10::FunctionSchema& schema = call.op.schema();
  const std::string& name = schema.name();
  auto capture = how == Route::captured ? capture_of(stream) : nullptr;

  if (capture && (call.reads_data || has_capture_defect(name))) refuse_in_capture(capture, name);
  if (only_scalars(call.target.schema()) && !call.reads_data) return false; // what it tells, the host knows
  size_t count = schema.arguments().size();
  Stack arguments(stack->end() - std::ptrdiff_t(count), stack->end());
  bool plain = call.cpu_key == c10::DispatchKey::CPU;
  for (const IValue& value : arguments) {
    each_tensor(value, [&](const Tensor& tensor) { plain = plain && (!tensor.defined() || is_plain(tensor)); });
  }
  bool borrows = call.hidden_random && !call.body; // PyTorch's CPU generator, which other threads use
  if (call.reads_data || borrows || !plain) {
    if (capture) {
      refuse_in_capture(capture, borrows ? name + " draws from a generator it does not take as an argument"
                                                    : name + " on tensors that are not strided");
    }
    wait_stream(stream);
    return false;
  }

  std::optional<Twins> twins;
  auto known = learn(call, twins, arguments);
  if (!known) {
    if (!capture) {
      wait_stream(stream);
      return false;
    }
    twins.emplace(Stand::scratch);
    known = try_compute(call, *twins, Stand::scratch, arguments);
  }
  if (!schema.is_mutable()) drop_masked(call.target.schema(), arguments, *known);
  bool plain_results = true;
  for (const IValue& value : *known) {
    each_tensor(value, [&](const Tensor& result) { plain_results = plain_results && (!result.defined() || is_plain(result)); });
  }
  if (!plain_results) {
    if (capture) refuse_in_capture(capture, name + " gives a tensor that is not strided");
    wait_stream(stream);
    return false;
  }
  apply_sizes(*twins);

  // Results: arguments, views of arguments, or new memory.
  Twins hosts(Stand::host);
  Call later{call.target, call.body, call.cpu_key, arguments, {}, call.half, call.generator, {}, at::GradMode::is_enabled()};
  auto place = [&](const Tensor& result) -> Tensor {
    if (!result.defined()) {
      later.results.emplace_back();
      return result;
    }
    if (Tensor origin = twins->origin(result); origin.defined()) {
      later.results.emplace_back();
      return origin;
    }
    Tensor fresh;
    {
      at::AutoDispatchBelowADInplaceOrView below;
      c10::impl::ExcludeDispatchKeyGuard no_autocast(c10::autocast_dispatch_keyset);
      fresh = at::empty_strided(result.sizes(), result.strides(),
                                at::TensorOptions(call.device).dtype(result.scalar_type()));
    }
    later.results.push_back(hosts.of(fresh));
    return fresh;
  };
  for (IValue& value : *known) replace_tensors(value, place);

  for (size_t i = 0; i < count; ++i) {
    IValue& value = later.arguments[i];
    if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    } else if (int(i) == call.generator) {
      at::Generator generator = value.isNone() ? default_generator(call.device.index()) : value.toGenerator();
      TORCH_CHECK(generator.device().type() == kMusa, "Expected a 'musa' device type for generator but found '",
                  generator.device().type(), "'");
      later.numbers = static_cast<MusaGenerator*>(generator.unsafeGetGeneratorImpl())->reserve();
    } else {
      replace_tensors(value, [&](const Tensor& tensor) {
        if (!tensor.defined() || on_device(tensor)) return hosts.of(tensor);
        Tensor value = tensor.detach().clone(); // kernels get host scalars by value when they are launched
        if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) value.unsafeGetTensorImpl()->set_wrapped_number(true);
        return value;
      });
    }
  }
  if (call.hidden_random) {
    const at::Generator& generator = default_generator(call.device.index());
    later.numbers = static_cast<MusaGenerator*>(generator.unsafeGetGeneratorImpl())->reserve();
  }
  if (!capture) sim::count(counters().kernel_launches);
  issue(stream, {lasting_string(kernel_name(call.op))}, std::move(later));
  torch::jit::drop(*stack, count);
  stack->insert(stack->end(), known->begin(), known->end());
  return true;
}

// ---- copies ----------------------------------------------------------------------------------------------------

namespace {

void copy_raw(const Tensor& to, const Tensor& from) {
  c10::InferenceMode no_inference(false);
  HostScope host;
  at::_ops::copy_::call(const_cast<Tensor&>(to), from, false);
}

void issue_copy(const c10::Stream& stream, const char* name, Tensor to, Tensor from) {
  Label label{name, SpanKind::memcpy, int64_t(to.nbytes())};
  issue(stream, label, [to = std::move(to), from = std::move(from)] { copy_raw(to, from); });
}

// Whether the copy engine reads host memory as it is. A copy that does not block converts on the device, behind the
// engine; one that blocks converts on the host, before it.
bool is_read_by_engine(const Tensor& host, const Tensor& device, bool non_blocking) {
  return host.is_contiguous() && host.sizes() == device.sizes() &&
      (non_blocking || host.scalar_type() == device.scalar_type());
}

// A host tensor that does not keep its memory alive, as a copy engine sees it.
Tensor unowned_host(const Tensor& tensor) {
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), tensor.storage().nbytes(),
      c10::DataPtr(tensor.storage().mutable_data(), nullptr, &nothing, c10::Device(c10::kCPU)), nullptr, false);
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                         c10::DispatchKeySet(c10::DispatchKey::CPU), tensor.dtype());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return result;
}

} // namespace

void deferred_copy(const Tensor& self, const Tensor& dst, bool non_blocking) {
  bool from_musa = on_device(self), to_musa = on_device(dst);
  Twins hosts(Stand::host);
  const char* name = lasting_string(copy_name(self, dst));
  if (from_musa && to_musa) {
    c10::Stream stream = current_stream(self.device().index());
    bool peers = self.device() != dst.device();
    if (peers) wait_for(mark(current_stream(dst.device().index())), stream);
    issue_copy(stream, name, hosts.of(dst), hosts.of(self));
    if (peers) wait_for(mark(stream), current_stream(dst.device().index()));
    return;
  }
  c10::Stream stream = current_stream((to_musa ? dst : self).device().index());
  const Tensor& host = to_musa ? self : dst;
  bool pinned = is_pinned(host.const_data_ptr());
  auto capture = capture_of(stream);
  if (capture && (!pinned || !non_blocking)) {
    refuse_in_capture(capture, non_blocking ? "a copy of host memory that is not pinned" : "a copy that the host waits for");
  }
  if (to_musa) {
    // What is not pinned, or has to be changed on the host, is read now, into memory of the driver.
    if (pinned && is_read_by_engine(self, dst, non_blocking)) {
      record_pinned_use(host.const_data_ptr(), stream);
      issue_copy(stream, name, hosts.of(dst), unowned_host(self));
    } else {
      if (capture) refuse_in_capture(capture, "a copy that changes host memory first");
      HostScope scope;
      issue_copy(stream, name, hosts.of(dst), self.clone());
    }
    if (!non_blocking) synchronize_stream(stream);
    return;
  }
  if (pinned && non_blocking && dst.is_contiguous()) {
    record_pinned_use(host.const_data_ptr(), stream);
    issue_copy(stream, name, unowned_host(dst), hosts.of(self));
    return;
  }
  if (capture) refuse_in_capture(capture, "a copy into host memory that is not contiguous");
  if (non_blocking) {
    wait_stream(stream); // the driver waits, though nobody asked for it
  } else {
    synchronize_stream(stream);
  }
  copy_raw(dst, hosts.of(self));
}

} // namespace sim
