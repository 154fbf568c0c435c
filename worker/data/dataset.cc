#include "worker/data/dataset.h"

#include <functional>
#include <numeric>

namespace ddprun::data {
namespace {

std::size_t bytes_of(const std::vector<std::int64_t>& shape, DType dtype) {
  const auto count = std::accumulate(shape.begin(), shape.end(), std::int64_t{1}, std::multiplies<>());
  return static_cast<std::size_t>(count) * size_of(dtype);
}

}  // namespace

std::size_t SampleLayout::input_bytes() const {
  return bytes_of(input_shape, input_dtype);
}
std::size_t SampleLayout::target_bytes() const {
  return bytes_of(target_shape, target_dtype);
}

}  // namespace ddprun::data
