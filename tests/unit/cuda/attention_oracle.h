#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "worker/tensor/geometry.h"
#include "worker/tensor/tensor.h"

// Attention and its gradients by plain loops in double.
namespace ddprun::test {

// Operands (batch, heads, rows, width) of any dtype; mask (queries, keys) or undefined.
struct AttentionInputs {
  Tensor query, key, value, mask, grad;
  kernels::AttentionOptions options;
};

struct AttentionOracle {
  explicit AttentionOracle(const AttentionInputs& in);
  Tensor out, log_sum, grad_dot_out;  // the last two: (batch, heads, queries)
  Tensor query_grad, key_grad, value_grad;
};

// The rows of one head.
struct HeadMatrix {
  HeadMatrix(Tensor& tensor, std::int64_t head)
      : width(tensor.size(3)), data(tensor.data<double>() + head * tensor.size(2) * width) {}
  double* operator[](std::int64_t row) const { return data + row * width; }
  std::int64_t width;
  double* data;
};

inline double dot(const double* a, const double* b, std::int64_t n) {
  double total = 0;
  for (std::int64_t i = 0; i < n; ++i) total += a[i] * b[i];
  return total;
}
inline void add_scaled(double factor, const double* from, std::int64_t n, double* to) {
  for (std::int64_t i = 0; i < n; ++i) to[i] += factor * from[i];
}

inline AttentionOracle::AttentionOracle(const AttentionInputs& in) {
  const auto wide = [](const Tensor& tensor) { return tensor.to(DType::float64).contiguous().clone(); };
  Tensor query = wide(in.query), key = wide(in.key), value = wide(in.value), grad = wide(in.grad);
  const Tensor mask = in.mask.defined() ? wide(in.mask) : Tensor();
  const std::int64_t heads = query.size(0) * query.size(1), queries = query.size(2), keys = key.size(2);
  out = Tensor::zeros(grad.shape(), DType::float64);
  log_sum = Tensor::full({query.size(0), query.size(1), queries}, -INFINITY, DType::float64);
  grad_dot_out = Tensor::zeros(log_sum.shape(), DType::float64);
  query_grad = Tensor::zeros(query.shape(), DType::float64);
  key_grad = Tensor::zeros(key.shape(), DType::float64);
  value_grad = Tensor::zeros(value.shape(), DType::float64);
  std::vector<double> share(static_cast<std::size_t>(keys));
  for (std::int64_t h = 0; h < heads; ++h) {
    const HeadMatrix q(query, h), k(key, h), v(value, h), g(grad, h), o(out, h);
    const HeadMatrix dq(query_grad, h), dk(key_grad, h), dv(value_grad, h);
    for (std::int64_t i = 0; i < queries; ++i) {
      double highest = -INFINITY, total = 0;
      for (std::int64_t j = 0; j < keys; ++j) {
        double& score = share[static_cast<std::size_t>(j)];
        score = in.options.scale * dot(q[i], k[j], q.width) + (mask.defined() ? mask.data<double>()[i * keys + j] : 0);
        if (in.options.causal && j > i + keys - queries) score = -INFINITY;
        highest = std::max(highest, score);
      }
      if (highest == -INFINITY) continue;  // the query sees no key
      for (double& score : share) total += score = std::exp(score - highest);
      for (double& score : share) score /= total;
      log_sum.data<double>()[h * queries + i] = highest + std::log(total);
      for (std::int64_t j = 0; j < keys; ++j) add_scaled(share[static_cast<std::size_t>(j)], v[j], v.width, o[i]);
      const double of_all = dot(g[i], o[i], v.width);
      grad_dot_out.data<double>()[h * queries + i] = of_all;
      for (std::int64_t j = 0; j < keys; ++j) {
        const double p = share[static_cast<std::size_t>(j)];
        const double score_grad = in.options.scale * p * (dot(g[i], v[j], v.width) - of_all);
        add_scaled(p, g[i], v.width, dv[j]);
        add_scaled(score_grad, k[j], q.width, dq[i]);
        add_scaled(score_grad, q[i], q.width, dk[j]);
      }
    }
  }
}

}  // namespace ddprun::test
