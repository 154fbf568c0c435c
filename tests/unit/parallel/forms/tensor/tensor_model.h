#pragma once

#include <algorithm>
#include <cmath>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>

#include "worker/autograd/ops.h"
#include "worker/nn/models.h"
#include "worker/nn/random_scope.h"
#include "worker/parallel/forms/tensor/cross_entropy.h"
#include "worker/parallel/forms/tensor/tensor_parallel.h"
#include "tests/support/run_ranks.h"

// Models that ranks compute together, and the same models whole.
namespace ddprun::testing {

inline void require(bool holds, const std::string& what) {
  if (!holds) throw std::runtime_error(what);
}

inline double largest_difference(const Tensor& a, const Tensor& b) {
  require(a.shape() == b.shape(), "shapes " + to_string(a.shape()) + " and " + to_string(b.shape()));
  const Tensor x = a.contiguous().to(DType::float64), y = b.contiguous().to(DType::float64);
  double largest = 0;
  for (std::int64_t i = 0; i < x.numel(); ++i) {
    const double difference = std::abs(x.data<double>()[i] - y.data<double>()[i]);
    if (!(difference <= largest)) largest = difference;
    if (std::isnan(largest)) break;
  }
  return largest;
}

inline constexpr std::int64_t batch = 3, context = 8, vocabulary = 16;

inline std::unique_ptr<nn::Module> make_gpt(double dropout = 0, bool bias = true) {
  Generator generator(7);
  nn::ModelOptions options{.input = {context}, .input_dtype = DType::int64, .outputs = vocabulary, .dropout = dropout};
  options.gpt = {.layers = 2, .heads = 4, .width = 16, .context = context, .vocabulary = vocabulary, .bias = bias};
  return nn::make_model("gpt", options, generator);
}

inline std::unique_ptr<nn::Module> make_mlp(std::vector<std::int64_t> hidden, double dropout = 0) {
  Generator generator(8);
  return nn::make_model("mlp", {.input = {6}, .outputs = 8, .hidden = std::move(hidden), .dropout = dropout},
                        generator);
}

inline Tensor tokens(std::uint64_t stream = 1) {
  Generator generator(9, stream);
  Tensor result = Tensor::empty({batch, context}, DType::int64);
  for (std::int64_t i = 0; i < result.numel(); ++i)
    result.data<std::int64_t>()[i] = static_cast<std::int64_t>(generator.below(vocabulary));
  return result;
}

inline Tensor normal_tensor(const Shape& shape, std::uint64_t stream, DType dtype = DType::float32) {
  Generator generator(10, stream);
  Tensor result = Tensor::empty(shape);
  fill_normal(result, 0, 1, generator);
  return result.to(dtype);
}

inline nn::SampleKeys keys_of_batch() {
  return {.seed = 4, .epoch = 1, .samples = {11, 3, 8}};
}

}  // namespace ddprun::testing
