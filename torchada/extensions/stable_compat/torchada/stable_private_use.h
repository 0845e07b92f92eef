// is_privateuseone() for torch's stable Device and Tensor, which have only is_cuda(): ported sources call it.
#pragma once

#include <torch/csrc/stable/accelerator.h>
#include <torch/headeronly/core/DeviceType.h>

#define is_cuda()                                                  \
  is_privateuseone() const noexcept {                              \
    return type_ == torch::headeronly::DeviceType::PrivateUse1;    \
  }                                                                \
  bool is_cuda()
#include <torch/csrc/stable/device_struct.h>
#undef is_cuda

#define is_cuda()                                                                    \
  is_privateuseone() const {                                                         \
    int32_t torchada_type = -1;                                                      \
    TORCH_ERROR_CODE_CHECK(aoti_torch_get_device_type(ath_.get(), &torchada_type));  \
    return torchada_type == static_cast<int32_t>(torch::headeronly::DeviceType::PrivateUse1); \
  }                                                                                  \
  bool is_cuda()
#include <torch/csrc/stable/tensor_struct.h>
#undef is_cuda
