#pragma once

#include <cstdint>

#include "common/float16.h"
#include "worker/tensor/cuda/module/refuse.h"

// Conversions from a view's dtype to C++ types.
namespace ddprun::cuda {

// Calls visit.template operator()<T>() for float32 and float64.
template <class Visit>
void visit_wide(const DeviceContext& device, const char* operation, DType dtype, Visit&& visit) {
  if (dtype == DType::float32) return visit.template operator()<float>();
  if (dtype == DType::float64) return visit.template operator()<double>();
  refuse_dtype(device, operation, dtype);
}

// Does what visit_wide() does, also for the 16-bit formats.
template <class Visit>
void visit_floating(const DeviceContext& device, const char* operation, DType dtype, Visit&& visit) {
  if (dtype == DType::bfloat16) return visit.template operator()<BFloat16>();
  if (dtype == DType::float16) return visit.template operator()<Float16>();
  visit_wide(device, operation, dtype, visit);
}

// Visits all element types.
template <class Visit>
void visit_any(const DeviceContext& device, const char* operation, DType dtype, Visit&& visit) {
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
      return visit_floating(device, operation, dtype, visit);
  }
}

// Visits with an unsigned integer as wide as the element, for code that only moves elements.
template <class Visit>
void visit_word(DType dtype, Visit&& visit) {
  switch (size_of(dtype)) {
    case 1:
      return visit.template operator()<std::uint8_t>();
    case 2:
      return visit.template operator()<std::uint16_t>();
    case 4:
      return visit.template operator()<std::uint32_t>();
    default:
      return visit.template operator()<std::uint64_t>();
  }
}

}  // namespace ddprun::cuda
