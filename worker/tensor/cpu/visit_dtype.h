#pragma once

#include <cstdint>
#include <type_traits>

#include "common/error.h"
#include "worker/tensor/tensor.h"

// Conversions from a tensor's dtype to C++ types.
namespace ddprun::cpu {

[[noreturn]] inline void refuse_dtype(DType dtype) {
  throw make_error(Errc::unsupported, "arithmetic on {} tensors is not supported: only on floating-point types",
                   name_of(dtype));
}

// Calls visit.template operator()<T>() for float32 and float64.
template <class Visit>
decltype(auto) visit_wide(DType dtype, Visit&& visit) {
  if (dtype == DType::float32) return visit.template operator()<float>();
  if (dtype == DType::float64) return visit.template operator()<double>();
  refuse_dtype(dtype);
}

// Does what visit_wide() does, also for the 16-bit formats as BFloat16 and Float16.
template <class Visit>
decltype(auto) visit_floating(DType dtype, Visit&& visit) {
  if (dtype == DType::bfloat16) return visit.template operator()<BFloat16>();
  if (dtype == DType::float16) return visit.template operator()<Float16>();
  return visit_wide(dtype, visit);
}

// The type in which values of a floating-point type are computed.
template <class Stored>
using Computed = std::conditional_t<sizeof(Stored) == 2, float, Stored>;

// Visits all element types.
template <class Visit>
decltype(auto) visit_any(DType dtype, Visit&& visit) {
  switch (dtype) {
    case DType::int8:
      return visit.template operator()<std::int8_t>();
    case DType::uint8:
      return visit.template operator()<std::uint8_t>();
    case DType::int32:
      return visit.template operator()<std::int32_t>();
    case DType::int64:
      return visit.template operator()<std::int64_t>();
    default:
      return visit_floating(dtype, visit);
  }
}

inline bool is_16_bit(const Tensor& tensor) {
  return tensor.defined() && is_floating(tensor.dtype()) && size_of(tensor.dtype()) == 2;
}

// Serves operations without a 16-bit form of their own: float32 instead of 16 bits, everything else as it is.
inline Tensor widened(const Tensor& tensor) {
  return is_16_bit(tensor) ? tensor.to(DType::float32) : tensor;
}

}  // namespace ddprun::cpu
