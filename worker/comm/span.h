#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "common/dtype.h"

namespace ddprun {

// The device number of the host's memory; 0 and up are the CUDA devices of this process.
inline constexpr std::int32_t host_memory = -1;

// Typed memory that the caller owns. It must stay valid until the operation has finished; until then the caller does
// not write it, nor read it if the operation writes it.
struct ConstSpan {
  const void* data = nullptr;
  std::size_t count = 0;  // elements
  DType dtype = DType::float32;
  std::int32_t device = host_memory;
  std::size_t bytes() const { return count * size_of(dtype); }
};
struct Span {
  void* data = nullptr;
  std::size_t count = 0;
  DType dtype = DType::float32;
  std::int32_t device = host_memory;
  std::size_t bytes() const { return count * size_of(dtype); }
  operator ConstSpan() const { return {data, count, dtype, device}; }
};
template <class T>
Span span_of(std::vector<T>& values) {
  return {values.data(), values.size(), dtype_of<T>};
}
template <class T>
ConstSpan span_of(const std::vector<T>& values) {
  return {values.data(), values.size(), dtype_of<T>};
}

}  // namespace ddprun
