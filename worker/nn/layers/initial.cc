#include "worker/nn/layers/initial.h"

#include <cmath>

namespace ddprun::nn {

Tensor uniform_by_fan_in(const Shape& shape, std::int64_t fan_in, Generator& generator) {
  Tensor values = Tensor::empty(shape);
  const double bound = fan_in > 0 ? 1 / std::sqrt(static_cast<double>(fan_in)) : 0;
  fill_uniform(values, -bound, bound, generator);
  return values;
}

Tensor xavier_uniform(const Shape& shape, Generator& generator) {
  Tensor values = Tensor::empty(shape);
  const double bound = std::sqrt(6 / static_cast<double>(shape[0] + shape[1]));
  fill_uniform(values, -bound, bound, generator);
  return values;
}

Tensor kaiming_normal(const Shape& shape, std::int64_t fan_out, Generator& generator) {
  return normal(shape, std::sqrt(2 / static_cast<double>(fan_out)), generator);
}

Tensor normal(const Shape& shape, double deviation, Generator& generator) {
  Tensor values = Tensor::empty(shape);
  fill_normal(values, 0, deviation, generator);
  return values;
}

}  // namespace ddprun::nn
