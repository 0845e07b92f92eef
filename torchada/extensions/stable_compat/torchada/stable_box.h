// TORCH_BOX(&function): a function of C++ values as the dispatcher calls kernels, on a stack of StableIValues.
#pragma once

#include <cstdint>
#include <tuple>
#include <type_traits>
#include <utility>

namespace torchada::stable {

template <typename T>
using Plain = std::remove_cv_t<std::remove_reference_t<T>>;

template <typename Function, Function function>
struct Boxed;

template <typename Result, typename... Parameters, Result (*function)(Parameters...)>
struct Boxed<Result (*)(Parameters...), function> {
  static void call(StableIValue* stack, uint64_t num_args, uint64_t num_outputs) {
    STD_TORCH_CHECK(
        num_args == sizeof...(Parameters),
        "the schema has ", num_args, " arguments, and the function ", sizeof...(Parameters));
    run(stack, num_outputs, std::index_sequence_for<Parameters...>());
  }

 private:
  template <size_t... I>
  static void run(StableIValue* stack, uint64_t num_outputs, std::index_sequence<I...>) {
    // Braces: each value is taken from the stack once, in order; the stack owns it no longer.
    [[maybe_unused]] std::tuple<Plain<Parameters>...> values{to<Plain<Parameters>>(stack[I])...};
    if constexpr (std::is_void_v<Result>) {
      outputs(num_outputs, 0);
      function(std::get<I>(values)...);
    } else if constexpr (is_tuple<Result>::value) {
      outputs(num_outputs, std::tuple_size_v<Result>);
      put(stack, function(std::get<I>(values)...), std::make_index_sequence<std::tuple_size_v<Result>>());
    } else {
      outputs(num_outputs, 1);
      stack[0] = from(function(std::get<I>(values)...));
    }
  }

  template <typename T>
  struct is_tuple : std::false_type {};
  template <typename... T>
  struct is_tuple<std::tuple<T...>> : std::true_type {};

  template <typename Tuple, size_t... I>
  static void put(StableIValue* stack, Tuple result, std::index_sequence<I...>) {
    ((stack[I] = from(std::get<I>(result))), ...);
  }

  static void outputs(uint64_t schema, uint64_t kernel) {
    STD_TORCH_CHECK(schema == kernel, "the schema has ", schema, " results, and the function ", kernel);
  }
};

}  // namespace torchada::stable

#define TORCH_BOX(FUNCTION) \
  &::torchada::stable::Boxed<std::decay_t<decltype(FUNCTION)>, (FUNCTION)>::call
