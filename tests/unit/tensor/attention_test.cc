// Attention on bfloat16 beside attention on float32: sizes around tiles, panels and pairs.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/tensor/cpu/attention_pairs.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/random.h"
#include "tests/support/catch.h"

using namespace ddprun;

namespace {

struct Case {
  std::int64_t queries, keys, width, value_width;
  bool causal, masked, accumulate;
};

// The result and the gradients of query, key and value.
struct Results {
  std::vector<Tensor> tensors;
};

class Attention {
 public:
  explicit Attention(const Case& c) : case_(c) {
    Generator generator(7);
    const auto random = [&](std::int64_t rows, std::int64_t columns) {
      Tensor tensor = Tensor::empty({2, 3, rows, columns});
      fill_normal(tensor, 0, 1, generator);
      return tensor.to(DType::bfloat16);
    };
    inputs_ = {random(c.queries, c.width), random(c.keys, c.width), random(c.keys, c.value_width)};
    grad_ = random(c.queries, c.value_width);
    if (!c.masked) return;
    mask_ = Tensor::empty({c.queries, c.keys});
    fill_normal(mask_, 0, 1, generator);
    mask_.slice(0, c.queries / 2, 1).fill(-std::numeric_limits<double>::infinity());  // this query sees no key
  }

  Results run(DType dtype) const {
    std::vector<Tensor> in, gradients;
    for (const Tensor& input : inputs_) {
      in.push_back(input.to(dtype));
      Tensor gradient = Tensor::empty(input.shape(), dtype);
      gradient.fill(0.5);
      gradients.push_back(gradient);
    }
    const auto& kernels = kernels::of(in[0]);
    const kernels::AttentionOptions options{.causal = case_.causal, .scale = 1 / std::sqrt(double(case_.width))};
    Tensor out = Tensor::empty(grad_.shape(), dtype), log_sum = Tensor::empty({2, 3, case_.queries});
    // The product is by pairs, whatever the processor, where rows consist of them.
    const bool in_pairs = dtype == DType::bfloat16 && case_.width % 2 == 0 && case_.value_width % 2 == 0;
    const auto run = [&](const auto& forward, const auto& backward) {
      forward(in[0], in[1], in[2], mask_, options, {out, log_sum});
      backward(in[0], in[1], in[2], mask_, {log_sum}, grad_.to(dtype), options,
               {gradients[0], gradients[1], gradients[2], case_.accumulate});
    };
    if (in_pairs)
      run(cpu::attention_in_pairs, cpu::attention_backward_in_pairs);
    else
      run(kernels.attention, kernels.attention_backward);
    return {{out, gradients[0], gradients[1], gradients[2]}};
  }

 private:
  const Case case_;
  std::vector<Tensor> inputs_;
  Tensor grad_, mask_;
};

// Returns the largest difference, as a share of the largest value.
double difference(const Tensor& one, const Tensor& other) {
  const Tensor a = one.to(DType::float32), b = other.to(DType::float32);
  double most = 0, largest = 0;
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double x = a.data<float>()[i], y = b.data<float>()[i];
    if (!std::isfinite(x)) return std::numeric_limits<double>::infinity();
    most = std::max(most, std::abs(x - y));
    largest = std::max(largest, std::abs(y));
  }
  return most / largest;
}

}  // namespace

TEST_CASE("attention on bfloat16 is that on float32, but for rounding") {
  const auto c = GENERATE(Case{32, 32, 16, 16, true, false, false}, Case{37, 37, 32, 32, true, false, false},
                          Case{1, 5, 2, 4, false, false, false}, Case{33, 70, 10, 6, false, true, false},
                          Case{64, 80, 64, 48, true, true, true}, Case{31, 17, 8, 8, true, false, true},
                          Case{40, 40, 5, 7, true, false, false});
  CAPTURE(c.queries, c.keys, c.width, c.value_width, c.causal, c.masked, c.accumulate);
  const Attention attention(c);
  const auto wide = attention.run(DType::float32), narrow = attention.run(DType::bfloat16);
  for (std::size_t i = 0; i < wide.tensors.size(); ++i) {
    CAPTURE(i);
    CHECK(difference(narrow.tensors[i], wide.tensors[i]) < 0.012);
  }
}
