#pragma once

#include <span>
#include <type_traits>
#include <utility>

#include "worker/tensor/tensor.h"

namespace ddprun::kernels {

[[noreturn]] void throw_missing(const char* operation, DType dtype, Device device);

// One operation of a device. Calling an entry that the device does not have is Errc::unsupported, naming the operation,
// the dtype and the device of its first tensor.
template <class Signature>
class Entry;
template <class Result, class... Parameters>
class Entry<Result(Parameters...)> {
 public:
  constexpr explicit Entry(const char* name) : name_(name) {}
  constexpr Entry& operator=(Result (*function)(Parameters...)) {
    function_ = function;
    return *this;
  }

  Result operator()(Parameters... arguments) const {
    if (function_ == nullptr) refuse(arguments...);
    return function_(std::forward<Parameters>(arguments)...);
  }

 private:
  template <class... Arguments>
  [[noreturn]] void refuse(const Arguments&... arguments) const {
    const Tensor* first = nullptr;
    const auto consider = [&](const auto& argument) {
      using Argument = std::remove_cvref_t<decltype(argument)>;
      if constexpr (std::is_same_v<Argument, Tensor>)
        if (first == nullptr) first = &argument;
      if constexpr (std::is_same_v<Argument, std::span<const Tensor>>)
        if (first == nullptr && !argument.empty()) first = argument.data();
    };
    (consider(arguments), ...);
    throw_missing(name_, first ? first->dtype() : DType::float32, first ? first->device() : Device{});
  }

  const char* name_;
  Result (*function_)(Parameters...) = nullptr;
};

using In = const Tensor&;
using Tensors = std::span<const Tensor>;  // handles: the elements may change

}  // namespace ddprun::kernels
