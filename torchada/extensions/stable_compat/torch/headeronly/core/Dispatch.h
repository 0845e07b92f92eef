// THO_DISPATCH_SWITCH and THO_DISPATCH_CASE: code for each type of elements, where torch has none (before 2.10).
#pragma once
#if __has_include_next(<torch/headeronly/core/Dispatch.h>)
#include_next <torch/headeronly/core/Dispatch.h>
#else
#include <torch/headeronly/core/ScalarType.h>
#include <torch/headeronly/util/BFloat16.h>
#include <torch/headeronly/util/Exception.h>
#include <torch/headeronly/util/Float8_e4m3fn.h>
#include <torch/headeronly/util/Float8_e5m2.h>
#include <torch/headeronly/util/Half.h>

#include <cstdint>

namespace torchada::stable {
template <torch::headeronly::ScalarType>
struct ElementOf;
#define TORCHADA_ELEMENT(KIND, ...)                                \
  template <>                                                      \
  struct ElementOf<torch::headeronly::ScalarType::KIND> {          \
    using type = __VA_ARGS__;                                      \
  };
TORCHADA_ELEMENT(Byte, uint8_t)
TORCHADA_ELEMENT(Char, int8_t)
TORCHADA_ELEMENT(Short, int16_t)
TORCHADA_ELEMENT(Int, int32_t)
TORCHADA_ELEMENT(Long, int64_t)
TORCHADA_ELEMENT(Half, torch::headeronly::Half)
TORCHADA_ELEMENT(Float, float)
TORCHADA_ELEMENT(Double, double)
TORCHADA_ELEMENT(Bool, bool)
TORCHADA_ELEMENT(BFloat16, torch::headeronly::BFloat16)
TORCHADA_ELEMENT(Float8_e4m3fn, torch::headeronly::Float8_e4m3fn)
TORCHADA_ELEMENT(Float8_e5m2, torch::headeronly::Float8_e5m2)
TORCHADA_ELEMENT(UInt16, uint16_t)
TORCHADA_ELEMENT(UInt32, uint32_t)
TORCHADA_ELEMENT(UInt64, uint64_t)
#undef TORCHADA_ELEMENT
}  // namespace torchada::stable

#define THO_DISPATCH_CASE(KIND, ...)                                                 \
  case KIND: {                                                                       \
    using scalar_t [[maybe_unused]] = typename torchada::stable::ElementOf<KIND>::type; \
    return __VA_ARGS__();                                                            \
  }
#define THO_DISPATCH_SWITCH(TYPE, NAME, ...)                                                    \
  [&] {                                                                                         \
    const torch::headeronly::ScalarType torchada_kind_ = (TYPE);                                \
    switch (torchada_kind_) {                                                                   \
      __VA_ARGS__                                                                               \
      default:                                                                                  \
        STD_TORCH_CHECK(false, '"', NAME, "\" not implemented for type ", static_cast<int>(torchada_kind_)); \
    }                                                                                           \
  }()
#endif
