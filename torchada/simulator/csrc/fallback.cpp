// One boxed fallback computes every operator: it shows the CPU kernel aliases of the device tensors and
// hands the results back as device tensors.
#include "fallback.h"
#include "deferred.h"
#include "generator.h"
#include "profiler.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/core/enum_tag.h>
#include <ATen/core/ivalue.h>
#include <ATen/ops/_to_copy.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/CPUAllocator.h>
#include <torch/library.h>

#include <cstring>
#include <mutex>
#include <unordered_map>
#include <unordered_set>

namespace sim {

namespace {

void drop_owner(void* owner) {
  c10::raw::intrusive_ptr::decref(static_cast<c10::StorageImpl*>(owner));
}

bool is_musa(const at::Tensor& tensor) {
  return tensor.device().type() == kMusa;
}

at::SparseTensorImpl* sparse_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseTensorImpl*>(tensor.unsafeGetTensorImpl());
}
at::SparseCsrTensorImpl* csr_impl(const at::Tensor& tensor) {
  return static_cast<at::SparseCsrTensorImpl*>(tensor.unsafeGetTensorImpl());
}
bool is_compressed(const at::Tensor& tensor) {
  auto layout = tensor.layout();
  return layout == c10::kSparseCsr || layout == c10::kSparseCsc || layout == c10::kSparseBsr || layout == c10::kSparseBsc;
}

c10::DispatchKeySet with_bits(c10::DispatchKeySet keys, const at::Tensor& like) {
  for (auto bit : {c10::DispatchKey::Conjugate, c10::DispatchKey::Negative, c10::DispatchKey::ZeroTensor}) {
    if (like.key_set().has(bit)) keys = keys.add(bit);
  }
  return keys;
}

at::Tensor strided(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const at::Tensor& like) {
  auto result = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(std::move(storage)),
                                                         with_bits(c10::DispatchKeySet(key), like), like.dtype());
  auto* impl = result.unsafeGetTensorImpl();
  impl->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  if (like.unsafeGetTensorImpl()->is_wrapped_number()) impl->set_wrapped_number(true);
  return result;
}

// A nested tensor is one buffer and the sizes of its parts, which live on the CPU on every device.
at::Tensor nested(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const at::Tensor& like) {
  auto* from = static_cast<at::native::NestedTensorImpl*>(like.unsafeGetTensorImpl());
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      c10::Storage(std::move(storage)), c10::DispatchKeySet(key) | c10::autograd_nested, like.dtype(),
      from->get_nested_sizes(), from->get_nested_strides(), from->get_storage_offsets());
}

// Whether *tensor* is what an operator answers that asks a nested tensor for its sizes: the very tensor it keeps.
bool describes(const at::Tensor& tensor, const at::Tensor& nested) {
  if (!nested.is_nested()) return false;
  auto* impl = static_cast<at::native::NestedTensorImpl*>(nested.unsafeGetTensorImpl());
  return tensor.is_same(impl->get_nested_sizes()) || tensor.is_same(impl->get_nested_strides()) ||
         tensor.is_same(impl->get_storage_offsets());
}

// A quantized tensor is its integers and a quantizer, whose scales live on the CPU here.
at::Tensor quantized(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const at::Tensor& like) {
  auto result = at::detail::make_tensor<at::QTensorImpl>(c10::Storage(std::move(storage)), c10::DispatchKeySet(key),
                                                         like.dtype(), at::get_qtensorimpl(like)->quantizer());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(like.sizes(), like.strides(), like.storage_offset());
  return result;
}

} // namespace

HostScope::HostScope() : no_autocast_(c10::autocast_dispatch_keyset) {}
CpuScope::CpuScope(c10::Device device) : route_(device.index()) {}

at::Tensor in_dtype(const at::Tensor& tensor, c10::ScalarType dtype) {
  if (!tensor.defined()) return tensor;
  HostScope host;
  return at::_ops::_to_copy::call(tensor, dtype, std::nullopt, std::nullopt, std::nullopt, false, std::nullopt);
}

// ---- device tensor -> CPU alias ----------------------------------------------------------------------

c10::intrusive_ptr<c10::StorageImpl> CpuCall::alias_storage(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  for (auto& pair : storages_) {
    if (pair.device.get() == impl) return pair.cpu;
  }
  impl->data(); // raises where torch has forbidden the access, as for an overwritten output of a graph
  auto owner = c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl);
  void* context = c10::intrusive_ptr<c10::StorageImpl>(owner).release();
  c10::DataPtr pointer(impl->_mutable_data_ptr_no_checks().get(), context, &drop_owner, c10::Device(c10::kCPU));
  auto cpu = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), impl->nbytes(),
                                                   std::move(pointer), c10::GetCPUAllocator(), /*resizable=*/true);
  storages_.push_back({std::move(owner), cpu});
  return cpu;
}

at::Tensor CpuCall::alias(const at::Tensor& tensor) {
  if (!tensor.defined() || !is_musa(tensor)) return tensor;
  for (auto& pair : tensors_) {
    if (pair.device.is_same(tensor)) return pair.cpu;
  }
  at::Tensor cpu;
  if (tensor.is_nested()) {
    cpu = nested(alias_storage(tensor.storage()), c10::DispatchKey::NestedTensorCPU, tensor);
  } else if (tensor.is_quantized()) {
    cpu = quantized(alias_storage(tensor.storage()), c10::DispatchKey::QuantizedCPU, tensor);
  } else if (tensor.layout() == c10::kStrided) {
    cpu = strided(alias_storage(tensor.storage()), c10::DispatchKey::CPU, tensor);
  } else if (tensor.layout() == c10::kSparse) {
    auto* from = sparse_impl(tensor);
    cpu = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCPU), tensor.dtype());
    auto* to = sparse_impl(cpu);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    to->set_indices_and_values_unsafe(alias(from->indices()), alias(from->values()));
    to->set_coalesced(from->coalesced());
  } else if (is_compressed(tensor)) {
    auto* from = csr_impl(tensor);
    cpu = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCsrCPU),
                                                           c10::Device(c10::kCPU), from->layout(), tensor.dtype());
    csr_impl(cpu)->set_member_tensors(alias(from->compressed_indices()), alias(from->plain_indices()),
                                      alias(from->values()), from->sizes());
  } else {
    TORCH_CHECK_NOT_IMPLEMENTED(false, "the simulated device does not compute with tensors of layout ", tensor.layout());
  }
  // Some kernels save more for the backward pass when an argument requires grad; autograd itself is off here.
  if (tensor.requires_grad()) cpu.unsafeGetTensorImpl()->set_requires_grad(true);
  tensors_.push_back({tensor, cpu});
  return cpu;
}

// ---- CPU result -> device tensor ---------------------------------------------------------------------

c10::intrusive_ptr<c10::StorageImpl> CpuCall::device_storage(const c10::Storage& storage) {
  auto* impl = storage.unsafeGetStorageImpl();
  for (auto& pair : storages_) {
    if (pair.cpu.get() == impl) return pair.device;
  }
  for (auto& pair : adopted_) {
    if (pair.cpu.get() == impl) return pair.device;
  }
  size_t bytes = impl->nbytes();
  c10::DataPtr pointer;
  auto& cpu_pointer = impl->_mutable_data_ptr_no_checks();
  bool owned = cpu_pointer.get_deleter() == device_deleter() && storage.use_count() == 1;
  if (owned) {
    pointer = std::move(cpu_pointer);
    pointer.unsafe_set_device(device_);
    impl->set_nbytes(0);
  } else {
    // Not allocated for this call (a constant the kernel keeps, memory of another thread): copy it.
    DeviceScope scope(device_.index());
    pointer = device_allocator()->allocate(bytes);
    if (bytes && impl->data()) std::memcpy(pointer.get(), impl->data(), bytes);
  }
  auto device = c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes, std::move(pointer),
                                                      device_allocator(), /*resizable=*/true);
  adopted_.push_back({device, c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(impl)});
  return device;
}

at::Tensor CpuCall::wrap(const at::Tensor& tensor) {
  if (tensor.is_quantized()) {
    return quantized(device_storage(tensor.storage()), c10::DispatchKey::QuantizedPrivateUse1, tensor);
  }
  if (tensor.is_nested()) {
    return nested(device_storage(tensor.storage()), c10::DispatchKey::NestedTensorPrivateUse1, tensor);
  }
  if (tensor.layout() == c10::kStrided) {
    return strided(device_storage(tensor.storage()), c10::DispatchKey::PrivateUse1, tensor);
  }
  if (tensor.layout() == c10::kSparse) {
    auto* from = sparse_impl(tensor);
    auto result = at::detail::make_tensor<at::SparseTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparsePrivateUse1), tensor.dtype());
    auto* to = sparse_impl(result);
    to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
    to->set_indices_and_values_unsafe(to_device(from->indices()), to_device(from->values()));
    to->set_coalesced(from->coalesced());
    return result;
  }
  if (is_compressed(tensor)) {
    auto* from = csr_impl(tensor);
    auto result = at::detail::make_tensor<at::SparseCsrTensorImpl>(c10::DispatchKeySet(c10::DispatchKey::SparseCsrPrivateUse1),
                                                                   device_, from->layout(), tensor.dtype());
    csr_impl(result)->set_member_tensors(to_device(from->compressed_indices()), to_device(from->plain_indices()),
                                         to_device(from->values()), from->sizes());
    return result;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(false, "the simulated device does not hold tensors of layout ", tensor.layout());
}

at::Tensor CpuCall::to_device(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != c10::kCPU) return tensor;
  for (auto& pair : tensors_) {
    if (pair.cpu.is_same(tensor)) return pair.device;
    if (describes(tensor, pair.cpu)) return tensor;
  }
  return wrap(tensor);
}

void CpuCall::finish() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    at::Tensor device = tensors_[i].device, cpu = tensors_[i].cpu;
    if (device.layout() == c10::kSparse) {
      auto *from = sparse_impl(cpu), *to = sparse_impl(device);
      at::Tensor indices = to_device(from->indices()), values = to_device(from->values());
      if (!indices.is_same(to->indices()) || !values.is_same(to->values())) {
        to->raw_resize_(from->sparse_dim(), from->dense_dim(), from->sizes());
        to->set_indices_and_values_unsafe(indices, values);
      }
      to->set_coalesced(from->coalesced());
    } else if (device.layout() == c10::kStrided && !device.is_nested()) {
      auto* impl = device.unsafeGetTensorImpl();
      if (device.is_quantized()) at::get_qtensorimpl(device)->set_quantizer_(at::get_qtensorimpl(cpu)->quantizer());
      if (cpu.sizes() != device.sizes() || cpu.strides() != device.strides() ||
          cpu.storage_offset() != device.storage_offset()) {
        impl->set_sizes_and_strides(cpu.sizes(), cpu.strides(), cpu.storage_offset());
      }
      if (cpu.is_conj() != device.is_conj()) device._set_conj(cpu.is_conj()); // linalg_lu_solve conjugates its out= so
      auto storage = device_storage(cpu.storage());
      if (storage.get() != device.storage().unsafeGetStorageImpl()) {
        impl->set_storage_keep_dtype(c10::Storage(std::move(storage)));
      }
    }
  }
  for (auto& pair : storages_) {
    auto& now = pair.cpu->_mutable_data_ptr_no_checks();
    if (now.get() == pair.device->_mutable_data_ptr_no_checks().get() && pair.cpu->nbytes() == pair.device->nbytes()) continue;
    c10::Device device = pair.device->device();
    size_t bytes = pair.cpu->nbytes();
    c10::DataPtr fresh;
    if (now.get_deleter() == device_deleter()) {
      fresh = std::move(now);
      fresh.unsafe_set_device(device);
    } else {
      DeviceScope scope(device.index());
      fresh = device_allocator()->allocate(bytes);
      if (bytes) std::memcpy(fresh.get(), now.get(), bytes);
    }
    pair.device->set_data_ptr_noswap(std::move(fresh));
    pair.device->set_nbytes(bytes);
  }
}

// ---- the boxed fallback --------------------------------------------------------------------------------

namespace {

// What the fallback needs to know of an operator, worked out once.
struct OpFacts {
  int generator = -1;          // position of its Generator argument
  bool hidden_random = false;  // draws from the default generator without such an argument
  bool reads_data = false;     // its shape or its errors depend on data: the host waits for the device
  int told_size = -1;          // position of an argument that tells the size instead, where it is given
  bool is_view = false;        // launches nothing
  bool sums_products = false;  // see common_half()
  int indices = -1;            // position of an argument of indices: masks among them make the shape depend on data
  int values = -1;             // position of the values to put there
};

// Arguments that CUDA accepts on the CPU although they are not scalars.
bool may_be_on_cpu(const std::string& op, const std::string& argument) {
  if (argument == "indices") return op.find("index") != std::string::npos;
  if (argument == "lengths") return op == "aten::_pack_padded_sequence";
  if (argument == "offsets") return op.find("_nested_view_from_buffer") != std::string::npos;
  if (argument == "nested_size" || argument == "nested_strides" || argument == "cpu_nested_shape_example" ||
      argument == "input_lengths" || argument == "target_lengths" ||
      argument == "batch_sizes" || argument == "lr") {
    return true;
  }
  return op.find("_fused_") != std::string::npos && argument == "state_steps";
}

// Devices multiply half precision numbers and add the products in float. The CPU kernels do this with special
// instructions only, and are ten times slower without them. So float kernels compute these operators, and the
// result is rounded once.
constexpr const char* kSumsProducts[] = {"mm", "bmm", "addmm", "baddbmm", "mv", "addmv", "dot"};

// PyTorch looks for failures inside these kernels, on CUDA too: the host waits, and what it raises leaves the device usable.
bool checks_on_host(const std::string& name) {
  static const std::unordered_set<std::string> checked = {"aten::_linalg_svd", "aten::_linalg_eigh", "aten::_linalg_eigvals",
                                                          "aten::linalg_eig", "aten::linalg_eigvals"};
  return checked.count(name) != 0;
}

// These have the tag of random operators for other devices' sake.
bool is_never_random(const std::string& op) {
  return op == "aten::_scaled_dot_product_flash_attention_for_cpu" || op == "aten::_fused_sdp_choice";
}

bool sums_products(const std::string& op) {
  if (op == "aten::convolution_overrideable" || op == "aten::convolution_backward_overrideable") return true;
  for (const char* name : kSumsProducts) {
    if (op.compare(6, std::string::npos, name) == 0) return true;
  }
  return false;
}

const OpFacts& facts_of(const c10::OperatorHandle& op) {
  thread_local std::unordered_map<const c10::FunctionSchema*, OpFacts> known;
  const c10::FunctionSchema& schema = op.schema();
  auto found = known.find(&schema);
  if (found != known.end()) return found->second;
  OpFacts facts;
  bool writes = false, returns_alias = false;
  for (size_t i = 0; i < schema.arguments().size(); ++i) {
    const c10::Argument& argument = schema.arguments()[i];
    c10::TypePtr type = argument.type();
    if (auto optional = type->cast<c10::OptionalType>()) type = optional->getElementType();
    if (type->kind() == c10::TypeKind::GeneratorType) facts.generator = int(i);
    if (argument.alias_info() && argument.alias_info()->isWrite()) writes = true;
    if (argument.name() == "indices" && argument.type()->kind() == c10::TypeKind::ListType) facts.indices = int(i);
    if (argument.name() == "values") facts.values = int(i);
  }
  for (const c10::Argument& result : schema.returns()) {
    if (result.alias_info()) returns_alias = true;
  }
  facts.is_view = (returns_alias && !writes) || op.hasTag(at::Tag::inplace_view);
  facts.hidden_random = facts.generator < 0 && op.hasTag(at::Tag::nondeterministic_seeded) && !is_never_random(schema.name());
  facts.sums_products = !writes && schema.overload_name().empty() && sums_products(schema.name());
  facts.reads_data = op.hasTag(at::Tag::dynamic_output_shape) || op.hasTag(at::Tag::data_dependent_output) ||
                     checks_on_host(schema.name());
  if (auto at = schema.argumentIndexWithName("output_size"); at && facts.reads_data) facts.told_size = *at;
  return known.emplace(&schema, facts).first->second;
}

// Whether the host has to see the device's data to know what this call gives.
bool reads_data(const OpFacts& facts, const c10::IValue* arguments) {
  if (facts.told_size >= 0 && !arguments[facts.told_size].isNone()) return false;
  if (facts.indices < 0) return facts.reads_data;
  size_t masks = 0, others = 0;
  auto see = [&](const at::Tensor& index) {
    if (!index.defined()) return;
    bool is_mask = index.scalar_type() == c10::kBool || index.scalar_type() == c10::kByte;
    (is_mask ? masks : others) += 1;
  };
  const c10::IValue& indices = arguments[facts.indices];
  if (indices.isOptionalTensorList()) {
    for (const std::optional<at::Tensor>& index : indices.toOptionalTensorList()) {
      if (index) see(*index);
    }
  } else if (indices.isTensorList()) {
    for (const at::Tensor& index : indices.toTensorList()) see(index);
  }
  if (masks == 0) return false;
  // One value under one mask needs no positions.
  bool fills = facts.values >= 0 && masks == 1 && others == 0 && arguments[facts.values].toTensor().numel() == 1;
  return !fills;
}

// Lends the CPU's default generator to the device for one call, so that the CPU stream stays as it was.
class BorrowCpuGenerator {
 public:
  explicit BorrowCpuGenerator(const at::mt19937& engine) : lock_(mutex()) {
    cpu_ = static_cast<at::CPUGeneratorImpl*>(at::detail::getDefaultCPUGenerator().unsafeGetGeneratorImpl());
    engine_ = cpu_->engine();
    next_float_ = cpu_->next_float_normal_sample();
    next_double_ = cpu_->next_double_normal_sample();
    restore(engine, std::nullopt, std::nullopt);
  }
  ~BorrowCpuGenerator() { restore(engine_, next_float_, next_double_); }
  BorrowCpuGenerator(const BorrowCpuGenerator&) = delete;
  BorrowCpuGenerator& operator=(const BorrowCpuGenerator&) = delete;

 private:
  static std::recursive_mutex& mutex() {
    static auto* instance = new std::recursive_mutex();
    return *instance;
  }
  void restore(const at::mt19937& engine, std::optional<float> f, std::optional<double> d) {
    cpu_->set_engine(engine);
    cpu_->set_next_float_normal_sample(f);
    cpu_->set_next_double_normal_sample(d);
  }
  std::unique_lock<std::recursive_mutex> lock_;
  at::CPUGeneratorImpl* cpu_;
  at::mt19937 engine_;
  std::optional<float> next_float_;
  std::optional<double> next_double_;
};

// Collects the devices of an operator's tensors and refuses mixtures that CUDA refuses.
struct DeviceCheck {
  const c10::OperatorHandle& op;
  std::optional<c10::Device> musa;
  std::optional<c10::Device> cpu; // a CPU tensor that may not stand beside a device tensor
  std::string cpu_argument;

  void see(const at::Tensor& tensor, const c10::Argument& argument) {
    if (!tensor.defined()) return;
    c10::Device device = tensor.device();
    if (device.type() == kMusa) {
      if (!musa) {
        musa = device;
      } else if (*musa != device) {
        fail(*musa, device, argument.name());
      }
    } else if (device.type() == c10::kCPU) {
      bool writes = argument.alias_info() && argument.alias_info()->isWrite();
      bool scalar = tensor.layout() == c10::kStrided && tensor.dim() == 0;
      if ((writes || !scalar) && !may_be_on_cpu(op.schema().name(), argument.name()) && !cpu) {
        cpu = device;
        cpu_argument = argument.name();
      }
    } else {
      TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, musa and ",
                  device, "!");
    }
  }
  void finish() const {
    if (musa && cpu) fail(*musa, *cpu, cpu_argument);
  }
  [[noreturn]] void fail(c10::Device a, c10::Device b, const std::string& argument) const {
    TORCH_CHECK(false, "Expected all tensors to be on the same device, but found at least two devices, ", a, " and ", b,
                "! (when checking argument for argument ", argument, " in method ", op.schema().name(), ")");
  }
};

c10::DispatchKey cpu_key_for(c10::DispatchKeySet keys) {
  for (auto key : {c10::DispatchKey::NestedTensorPrivateUse1, c10::DispatchKey::SparseCsrPrivateUse1,
                   c10::DispatchKey::SparsePrivateUse1, c10::DispatchKey::QuantizedPrivateUse1}) {
    if (keys.has(key)) return c10::toRuntimePerBackendFunctionalityKey(c10::toFunctionalityKey(key), c10::BackendComponent::CPUBit);
  }
  return c10::DispatchKey::CPU;
}

void fallback(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  run_on_cpu(op, op, keys, stack);
}

} // namespace

at::Generator cpu_generator(const at::mt19937& engine) {
  at::Generator generator = at::detail::createCPUGenerator();
  static_cast<at::CPUGeneratorImpl*>(generator.unsafeGetGeneratorImpl())->set_engine(engine);
  return generator;
}

namespace {
thread_local at::Generator hidden;
}
const at::Generator& hidden_generator() {
  return hidden;
}
HiddenGenerator::HiddenGenerator(const at::mt19937& engine) {
  hidden = cpu_generator(engine);
}
HiddenGenerator::~HiddenGenerator() {
  hidden = at::Generator();
}

std::optional<c10::ScalarType> common_half(const torch::jit::Stack& stack, size_t count) {
  std::optional<c10::ScalarType> common;
  for (size_t i = stack.size() - count; i < stack.size(); ++i) {
    if (!stack[i].isTensor()) continue;
    const at::Tensor& tensor = stack[i].toTensor();
    if (!tensor.defined()) continue;
    auto dtype = tensor.scalar_type();
    if ((dtype != c10::kHalf && dtype != c10::kBFloat16) || (common && *common != dtype)) return std::nullopt;
    common = dtype;
  }
  return common;
}

std::string kernel_name(const c10::OperatorHandle& op) {
  const auto& [name, overload] = op.operator_name();
  std::string local = name.substr(name.find("::") + 2);
  return local + (overload.empty() ? "" : "_" + overload) + "_kernel";
}

void run_on_cpu(const c10::OperatorHandle& op, const c10::OperatorHandle& target, c10::DispatchKeySet keys,
                torch::jit::Stack* stack, Body body) {
  const OpFacts& facts = facts_of(op);
  const auto& arguments = op.schema().arguments();
  const size_t count_in = arguments.size();
  const size_t first = stack->size() - count_in;

  DeviceCheck check{op, {}, {}, {}};
  std::optional<c10::Device> asked; // a device argument
  for (size_t i = 0; i < count_in; ++i) {
    const c10::IValue& value = (*stack)[first + i];
    if (value.isTensor()) {
      check.see(value.toTensor(), arguments[i]);
    } else if (value.isTensorList()) {
      for (const at::Tensor& tensor : value.toTensorList()) check.see(tensor, arguments[i]);
    } else if (value.isOptionalTensorList()) {
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        if (tensor) check.see(*tensor, arguments[i]);
      }
    } else if (value.isDevice()) {
      asked = value.toDevice();
    }
  }
  check.finish();

  c10::Device device = check.musa ? *check.musa : normalize({kMusa, -1});
  if (asked && asked->type() == kMusa) device = normalize(*asked);
  DeviceScope scope(device.index());

  c10::DispatchKey cpu_key = cpu_key_for(keys);
  TORCH_CHECK_NOT_IMPLEMENTED(body || target.hasComputedKernelForDispatchKey(cpu_key), "Could not run '", op.operator_name(),
                              "' with arguments from the 'musa' backend: the simulated device computes with PyTorch's "
                              "CPU kernels, and PyTorch has none for this operator (", cpu_key, ").");

  auto half = facts.sums_products ? common_half(*stack, count_in) : std::nullopt;
  bool needs_data = (facts.reads_data || facts.indices >= 0) && reads_data(facts, &(*stack)[first]);
  if (may_defer() && !facts.is_view &&
      defer({op, target, body, cpu_key, device, facts.generator, facts.hidden_random, needs_data, half}, stack)) {
    return;
  }

  CpuCall call(device);
  std::optional<BorrowCpuGenerator> borrowed;
  std::optional<HiddenGenerator> lent;
  for (size_t i = 0; i < count_in; ++i) {
    c10::IValue& value = (*stack)[first + i];
    if (value.isTensor()) {
      value = half ? in_dtype(call.alias(value.toTensor()), c10::kFloat) : call.alias(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) list.push_back(call.alias(tensor));
      value = list;
    } else if (value.isOptionalTensorList()) {
      c10::List<std::optional<at::Tensor>> list;
      for (const std::optional<at::Tensor>& tensor : value.toOptionalTensorList()) {
        list.push_back(tensor ? std::optional<at::Tensor>(call.alias(*tensor)) : std::nullopt);
      }
      value = list;
    } else if (value.isDevice()) {
      value = c10::Device(c10::kCPU);
    } else if (int(i) == facts.generator) {
      at::Generator generator = value.isNone() ? default_generator(device.index()) : value.toGenerator();
      TORCH_CHECK(generator.device().type() == kMusa, "Expected a 'musa' device type for generator but found '",
                  generator.device().type(), "'");
      // The generator alone brought a call for CPU tensors here.
      TORCH_CHECK(check.musa || !check.cpu, "Expected a 'cpu' device type for generator but found 'musa'");
      value = cpu_generator(static_cast<MusaGenerator*>(generator.unsafeGetGeneratorImpl())->next_engine());
    }
  }
  if (facts.hidden_random) {
    auto* generator = static_cast<MusaGenerator*>(default_generator(device.index()).unsafeGetGeneratorImpl());
    if (body) {
      lent.emplace(generator->next_engine());
    } else {
      borrowed.emplace(generator->next_engine());
    }
  }
  if (!facts.is_view) count(counters().kernel_launches);
  if (needs_data) count(counters().host_syncs);

  std::optional<Span> span;
  if (!facts.is_view) span = make_span(SpanKind::kernel, [&] { return kernel_name(op); }, current_stream(device.index()));
  auto compute = [&] {
    if (body) {
      body(op, stack);
    } else {
      target.redispatchBoxed(c10::DispatchKeySet(cpu_key), stack);
    }
  };
  const size_t count_out = op.schema().returns().size();
  if (half) {
    SpanTimer timer(span);
    {
      HostScope host; // the float tensors are no memory of the device
      compute();
    }
    CpuScope cpu(device);
    for (size_t i = stack->size() - count_out; i < stack->size(); ++i) {
      (*stack)[i] = in_dtype((*stack)[i].toTensor(), *half);
    }
  } else {
    SpanTimer timer(span);
    CpuScope cpu(device);
    compute();
  }
  call.finish();

  for (size_t i = stack->size() - count_out; i < stack->size(); ++i) {
    c10::IValue& value = (*stack)[i];
    if (value.isTensor()) {
      value = call.to_device(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& tensor : value.toTensorList()) list.push_back(call.to_device(tensor));
      value = list;
    }
  }
}

void register_layout_kernels() {
  // PyTorch gives many operators one general kernel and special ones for CPU tensors. The general one would win
  // over a fallback, and is often narrower or slower, so the fallback is registered by name where the CPU has a
  // special one.
  static std::vector<torch::Library>* libraries = nullptr; // registrations end with the library object
  if (libraries) return;
  libraries = new std::vector<torch::Library>();
  auto& dispatcher = c10::Dispatcher::singleton();
  for (auto [cpu, musa] : {std::pair{c10::DispatchKey::CPU, c10::DispatchKey::PrivateUse1},
                           {c10::DispatchKey::SparseCPU, c10::DispatchKey::SparsePrivateUse1},
                           {c10::DispatchKey::SparseCsrCPU, c10::DispatchKey::SparseCsrPrivateUse1},
                           {c10::DispatchKey::QuantizedCPU, c10::DispatchKey::QuantizedPrivateUse1},
                           {c10::DispatchKey::NestedTensorCPU, c10::DispatchKey::NestedTensorPrivateUse1}}) {
    libraries->emplace_back(torch::Library::IMPL, "aten", musa, __FILE__, __LINE__);
    for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
      if (name.name.rfind("aten::", 0) != 0) continue;
      auto op = dispatcher.findSchema(name);
      if (!op || !op->hasKernelForDispatchKey(cpu) || op->hasKernelForDispatchKey(musa)) continue;
      if (cpu == c10::DispatchKey::CPU && !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutograd) &&
          !op->hasKernelForDispatchKey(c10::DispatchKey::CompositeExplicitAutogradNonFunctional)) {
        continue; // the fallback comes first already
      }
      std::string local = name.name.substr(6) + (name.overload_name.empty() ? "" : "." + name.overload_name);
      libraries->back().impl(local.c_str(), torch::CppFunction::makeFromBoxedFunction<&fallback>());
    }
  }
}

} // namespace sim

namespace {

#define SIM_FALLBACK(key)              \
  TORCH_LIBRARY_IMPL(_, key, m) {      \
    m.fallback(torch::CppFunction::makeFromBoxedFunction<&sim::fallback>()); \
  }

SIM_FALLBACK(PrivateUse1)
SIM_FALLBACK(SparsePrivateUse1)
SIM_FALLBACK(SparseCsrPrivateUse1)
SIM_FALLBACK(NestedTensorPrivateUse1)
SIM_FALLBACK(QuantizedPrivateUse1)

} // namespace
