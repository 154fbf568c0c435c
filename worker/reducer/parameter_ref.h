#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <numeric>
#include <string>
#include <vector>

#include "worker/comm/process_group.h"

namespace ddprun {

// A parameter or a buffer of any engine. The engine owns the memory, which must outlive the use.
struct ParameterRef {
  std::string name;  // unique in its model
  std::vector<std::int64_t> shape;
  DType dtype = DType::float32;
  void* data = nullptr;
  std::int32_t device = host_memory;  // Span::device
  void* stream = nullptr;             // OpOptions::after: the stream in whose order the engine writes the memory

  std::size_t count() const {
    return static_cast<std::size_t>(
        std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<std::int64_t>()));
  }
  Span span() const { return {data, count(), dtype, device}; }
};

}  // namespace ddprun
