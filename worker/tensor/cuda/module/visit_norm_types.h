#pragma once

#include "worker/tensor/cuda/module/visit_dtype.h"

namespace ddprun::cuda {

// Calls visit.template operator()<Stored, Other>() for values of a floating-point type and results of the same, or of
// 16 bits where the values are float32.
template <class Visit>
void visit_norm_types(const DeviceContext& device, const char* operation, DType stored, DType other, Visit&& visit) {
  if (stored == DType::float32 && other == DType::bfloat16) return visit.template operator()<float, BFloat16>();
  if (stored == DType::float32 && other == DType::float16) return visit.template operator()<float, Float16>();
  if (stored != other) refuse_dtype(device, operation, other);
  visit_floating(device, operation, stored, [&]<class Stored>() { visit.template operator()<Stored, Stored>(); });
}

}  // namespace ddprun::cuda
