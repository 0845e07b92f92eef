// torch 2.9: torch::stable::Tensor with the accessors of later versions, torch::stable::Device, and operators.
//
// torch's files stay as they are: the members come to its class by a macro, while its header is read.
#pragma once

#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/shim_utils.h>

#include <array>
#include <cstring>
#include <optional>
#include <string>
#include <type_traits>
#include <vector>

#if __has_include(<torch/headeronly/core/DeviceType.h>)
#include <torch/headeronly/core/DeviceType.h>
#else
#include <c10/core/DeviceType.h>
namespace torch::headeronly {
using c10::DeviceType;
}
#endif

#include <torch/csrc/stable/accelerator.h>

namespace torch::stable {

using torch::headeronly::DeviceType;
using torch::headeronly::HeaderOnlyArrayRef;
using torch::headeronly::IntHeaderOnlyArrayRef;
using accelerator::DeviceIndex;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index = -1) : type_(type), index_(index) { check(); }
  Device(const std::string& text) : type_(DeviceType::CPU), index_(-1) {
    const size_t colon = text.find(':');
    const std::string kind = text.substr(0, colon);
    if (kind == "cuda" || kind == "musa" || kind == "privateuseone")
      type_ = DeviceType::PrivateUse1;
    else
      STD_TORCH_CHECK(kind == "cpu", "a device is cpu, musa or cuda, not ", text);
    if (colon != std::string::npos) index_ = static_cast<DeviceIndex>(std::stoi(text.substr(colon + 1)));
    check();
  }
  bool operator==(const Device& other) const noexcept { return type_ == other.type_ && index_ == other.index_; }
  bool operator!=(const Device& other) const noexcept { return !(*this == other); }
  void set_index(DeviceIndex index) { index_ = index; }
  DeviceType type() const noexcept { return type_; }
  DeviceIndex index() const noexcept { return index_; }
  bool has_index() const noexcept { return index_ != -1; }
  bool is_cpu() const noexcept { return type_ == DeviceType::CPU; }
  bool is_privateuseone() const noexcept { return type_ == DeviceType::PrivateUse1; }
  bool is_cuda() const noexcept { return type_ == DeviceType::CUDA; }

 private:
  void check() const {
    STD_TORCH_CHECK(index_ >= -1, "Device index must be -1 or non-negative, got ", static_cast<int>(index_));
  }
  DeviceType type_;
  DeviceIndex index_;
};

}  // namespace torch::stable

// The members that come to torch's class, at its is_cuda().
#define is_cuda()                                                                                                      \
  is_privateuseone() const {                                                                                           \
    return device().is_privateuseone();                                                                                \
  }                                                                                                                    \
  torch::headeronly::IntHeaderOnlyArrayRef sizes() const {                                                             \
    int64_t* values = nullptr;                                                                                         \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_sizes(get(), &values));                                                      \
    return {values, static_cast<size_t>(dim())};                                                                       \
  }                                                                                                                    \
  torch::headeronly::IntHeaderOnlyArrayRef strides() const {                                                           \
    int64_t* values = nullptr;                                                                                         \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_strides(get(), &values));                                                    \
    return {values, static_cast<size_t>(dim())};                                                                       \
  }                                                                                                                    \
  int64_t storage_offset() const {                                                                                     \
    int64_t value = 0;                                                                                                 \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_storage_offset(get(), &value));                                              \
    return value;                                                                                                      \
  }                                                                                                                    \
  size_t element_size() const {                                                                                        \
    int32_t dtype = 0;                                                                                                 \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_dtype(get(), &dtype));                                                       \
    return aoti_torch_dtype_element_size(dtype);                                                                       \
  }                                                                                                                    \
  void* mutable_data_ptr() const {                                                                                     \
    return data_ptr();                                                                                                 \
  }                                                                                                                    \
  const void* const_data_ptr() const {                                                                                 \
    return data_ptr();                                                                                                 \
  }                                                                                                                    \
  template <typename T>                                                                                                \
  T* mutable_data_ptr() const {                                                                                        \
    return static_cast<T*>(data_ptr());                                                                                \
  }                                                                                                                    \
  template <typename T, std::enable_if_t<!std::is_const_v<T>, int> = 0>                                                \
  const T* const_data_ptr() const {                                                                                    \
    return static_cast<const T*>(data_ptr());                                                                          \
  }                                                                                                                    \
  Device device() const {                                                                                              \
    int32_t type = 0;                                                                                                  \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(get(), &type));                                                  \
    return Device(static_cast<DeviceType>(type), get_device_index());                                                  \
  }                                                                                                                    \
  bool is_cuda()
// Weak, because torch 2.9 defines it in a header, once in every object.
#define scalar_type() __attribute__((weak)) scalar_type()
#include <torch/csrc/stable/tensor_struct.h>
#undef scalar_type
#undef is_cuda

#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

namespace torch::stable {

inline Tensor empty(
    IntHeaderOnlyArrayRef sizes,
    std::optional<ScalarType> dtype = std::nullopt,
    std::optional<Device> device = std::nullopt) {
  std::vector<int64_t> strides(sizes.size(), 1);
  for (size_t i = sizes.size(); i-- > 1;) strides[i - 1] = strides[i] * (sizes[i] > 0 ? sizes[i] : 1);
  const Device place = device.value_or(Device(DeviceType::CPU));
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_empty_strided(
      static_cast<int64_t>(sizes.size()),
      sizes.data(),
      strides.data(),
      to<int32_t>(from(dtype.value_or(ScalarType::Float))),
      static_cast<int32_t>(place.type()),
      place.index(),
      &made));
  return Tensor(made);
}

inline Tensor from_blob(
    void* data, IntHeaderOnlyArrayRef sizes, IntHeaderOnlyArrayRef strides, Device device, ScalarType dtype) {
  AtenTensorHandle made = nullptr;
  TORCH_ERROR_CODE_CHECK(aoti_torch_create_tensor_from_blob(
      data,
      static_cast<int64_t>(sizes.size()),
      sizes.data(),
      strides.data(),
      0,
      to<int32_t>(from(dtype)),
      static_cast<int32_t>(device.type()),
      device.index(),
      &made));
  return Tensor(made);
}

inline Tensor contiguous(const Tensor& self) {
  std::array<StableIValue, 2> stack{from(self), from(static_cast<int32_t>(0))};  // torch.contiguous_format
  TORCH_ERROR_CODE_CHECK(aoti_torch_call_dispatcher("aten::contiguous", "", stack.data()));
  return to<Tensor>(stack[0]);
}

inline Tensor flatten(const Tensor& self, int64_t start_dim = 0, int64_t end_dim = -1) {
  std::array<StableIValue, 3> stack{from(self), from(start_dim), from(end_dim)};
  TORCH_ERROR_CODE_CHECK(aoti_torch_call_dispatcher("aten::flatten", "using_ints", stack.data()));
  return to<Tensor>(stack[0]);
}

}  // namespace torch::stable
