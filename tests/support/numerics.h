#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "worker/autograd/ops.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

namespace ddprun::test {

inline Tensor random_tensor(Shape shape, std::uint64_t seed, DType dtype = DType::float32) {
  Generator generator(seed);
  Tensor result = Tensor::empty(std::move(shape), dtype);
  fill_normal(result, 0, 1, generator);
  return result;
}

inline std::vector<double> values(const Tensor& tensor) {
  const Tensor wide = tensor.to(DType::float64).contiguous();
  return {wide.data<double>(), wide.data<double>() + wide.numel()};
}

inline double largest_magnitude(const std::vector<double>& values) {
  double largest = 0;
  for (double value : values) largest = std::max(largest, std::abs(value));
  return largest;
}

// The largest |a - b|, as a share of the largest magnitude in b; if b is all zeros, the largest |a|. Where b is what
// remains of larger terms that cancel, the share is of their magnitude: least_scale.
inline double difference(const std::vector<double>& a, const std::vector<double>& b, double least_scale = 0) {
  if (a.size() != b.size()) return INFINITY;
  double worst = 0;
  const double scale = std::max(least_scale, largest_magnitude(b));
  for (std::size_t i = 0; i < a.size(); ++i) {
    if (!(std::abs(a[i] - b[i]) <= worst)) worst = std::abs(a[i] - b[i]);
  }
  return scale > 0 ? worst / scale : worst;
}
inline double difference(const Tensor& a, const Tensor& b, double least_scale = 0) {
  return difference(values(a), values(b), least_scale);
}

inline bool same_bits(const Tensor& given_a, const Tensor& given_b) {
  const Tensor a = given_a.contiguous(), b = given_b.contiguous();
  return a.shape() == b.shape() && a.dtype() == b.dtype() && std::memcmp(a.raw(), b.raw(), a.bytes()) == 0;
}

// Compares the gradient of a scalar function by central differences in double with backward()'s, over every element of
// every input; returns the worst difference(). The caller chooses inputs at which the function is differentiable (not
// relu at 0, no equal maxima).
inline double grad_check(const std::function<Variable(const std::vector<Variable>&)>& function,
                         std::vector<Tensor> inputs) {
  std::vector<Variable> variables;
  for (const Tensor& input : inputs) variables.emplace_back(input, true);
  function(variables).backward();
  double worst = 0;
  NoGradScope no_grad;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    std::vector<double> estimate;
    for (std::int64_t j = 0; j < inputs[i].numel(); ++j) {
      constexpr double step = 1e-5;
      double& element = inputs[i].data<double>()[j];
      const double before = element;
      element = before + step;
      const double above = function(variables).value().item();
      element = before - step;
      const double below = function(variables).value().item();
      element = before;
      estimate.push_back((above - below) / (2 * step));
    }
    worst = std::max(worst, difference(values(variables[i].grad()), estimate));
  }
  return worst;
}

}  // namespace ddprun::test
