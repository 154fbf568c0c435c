#include <cmath>
#include <vector>

#include "worker/tensor/cpu/lanes.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cpu {
namespace {

using kernels::Axis;

// Blocks are summed in lanes, and together in double: the error does not grow with the length.
constexpr std::int64_t block = 512;
constexpr std::int64_t block_of_rows = 32;  // as many as a block has for a lane

template <class T>
DDPRUN_VECTORIZED T sum_row(std::int64_t count, const T* x) {
  double total = 0;
  for (std::int64_t start = 0; start < count; start += block) {
    const T* from = x + start;
    const std::int64_t size = count - start < block ? count - start : block;
    total += static_cast<double>(lane_sum<T>(
        size, [from](std::int64_t i) __attribute__((always_inline)) { return from[i]; }));
  }
  return static_cast<T>(total);
}

// out[i] = the sum of count rows of x, each inner long
template <class T>
[[gnu::always_inline]] inline void sum_rows(std::int64_t count, std::int64_t inner, const T* x, T* out) {
  for (std::int64_t i = 0; i < inner; ++i) out[i] = 0;
  for (std::int64_t n = 0; n < count; ++n, x += inner) {
    for (std::int64_t i = 0; i < inner; ++i) out[i] += x[i];
  }
}

template <class T>
DDPRUN_VECTORIZED void sum_columns(const Axis& axis, const T* x, T* out) {
  if (axis.n <= block_of_rows) {
    for (std::int64_t outer = 0; outer < axis.outer; ++outer)
      sum_rows(axis.n, axis.inner, x + outer * axis.n * axis.inner, out + outer * axis.inner);
    return;
  }
  std::vector<T> partial(static_cast<std::size_t>(axis.inner));
  std::vector<double> total(static_cast<std::size_t>(axis.inner));
  for (std::int64_t outer = 0; outer < axis.outer; ++outer) {
    std::fill(total.begin(), total.end(), 0.0);
    for (std::int64_t start = 0; start < axis.n; start += block_of_rows) {
      const std::int64_t count = std::min(block_of_rows, axis.n - start);
      sum_rows(count, axis.inner, x, partial.data());
      for (std::int64_t i = 0; i < axis.inner; ++i)
        total[static_cast<std::size_t>(i)] += static_cast<double>(partial[static_cast<std::size_t>(i)]);
      x += count * axis.inner;
    }
    for (std::int64_t i = 0; i < axis.inner; ++i) *out++ = T(total[static_cast<std::size_t>(i)]);
  }
}

// Runs with float32 instead of 16 bits; out receives the result.
template <class Run>
void with_wide(Tensor& out, Run run) {
  Tensor wide = widened(out);
  run(wide);
  if (wide.raw() != out.raw()) kernels::copy(wide, out);
}

void sum(const Tensor& x, const Axis& axis, Tensor& out) {
  if (is_16_bit(x)) return with_wide(out, [&](Tensor& wide) { sum(widened(x), axis, wide); });
  visit_wide(x.dtype(), [&]<class T>() {
    if (axis.inner != 1) return sum_columns(axis, x.data<T>(), out.data<T>());
    for (std::int64_t row = 0; row < axis.outer; ++row)
      out.data<T>()[row] = sum_row(axis.n, x.data<T>() + row * axis.n);
  });
}

// A NaN counts as larger than everything, as in PyTorch.
void max(const Tensor& x, const Axis& axis, Tensor& out, Tensor& index) {
  visit_floating(x.dtype(), [&]<class T>() {
    using C = ComputeType<T>;
    const T* from = x.data<T>();
    T* value = out.data<T>();
    std::int64_t* at = index.data<std::int64_t>();
    for (std::int64_t outer = 0; outer < axis.outer; ++outer, from += axis.n * axis.inner) {
      for (std::int64_t i = 0; i < axis.inner; ++i) {
        std::int64_t best = 0;
        for (std::int64_t n = 1; n < axis.n; ++n) {
          const auto candidate = static_cast<C>(from[n * axis.inner + i]),
                     top = static_cast<C>(from[best * axis.inner + i]);
          if (candidate > top || (std::isnan(candidate) && !std::isnan(top))) best = n;
        }
        *value++ = from[best * axis.inner + i];
        *at++ = best;
      }
    }
  });
}

template <class T>
DDPRUN_VECTORIZED void softmax_row(std::int64_t count, const T* x, bool log, T* y) {
  T highest = x[0];
  for (std::int64_t i = 1; i < count; ++i) {
    const T value = x[i];
    highest = value > highest || value != value ? value : highest;
  }
  const T total = lane_sum<T>(
      count, [ x, highest ](std::int64_t i) __attribute__((always_inline)) { return functor::exp(x[i] - highest); });
  if (log) {
    const T log_total = functor::log(total);
    for (std::int64_t i = 0; i < count; ++i) y[i] = T(x[i] - highest - log_total);
  } else {
    const T share = T(1) / total;
    for (std::int64_t i = 0; i < count; ++i) y[i] = T(functor::exp(x[i] - highest) * share);
  }
}

template <class T>
DDPRUN_VECTORIZED void softmax_gradient_row(std::int64_t count, const T* y, const T* grad, bool log, T* out) {
  if (log) {
    const T total = lane_sum<T>(
        count, [grad](std::int64_t i) __attribute__((always_inline)) { return grad[i]; });
    for (std::int64_t i = 0; i < count; ++i) out[i] = T(grad[i] - functor::exp(y[i]) * total);
    return;
  }
  const T total = lane_sum<T>(
      count, [ y, grad ](std::int64_t i) __attribute__((always_inline)) { return grad[i] * y[i]; });
  for (std::int64_t i = 0; i < count; ++i) out[i] = T(y[i] * (grad[i] - total));
}

void softmax(const Tensor& x, const Axis& rows, bool log, Tensor& y) {
  if (is_16_bit(x)) return with_wide(y, [&](Tensor& wide) { softmax(widened(x), rows, log, wide); });
  visit_wide(x.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < rows.outer; ++row)
      softmax_row(rows.n, x.data<T>() + row * rows.n, log, y.data<T>() + row * rows.n);
  });
}

void softmax_gradient(const Tensor& y, const Tensor& grad, const Axis& rows, bool log, Tensor& out) {
  if (is_16_bit(y))
    return with_wide(out, [&](Tensor& wide) { softmax_gradient(widened(y), widened(grad), rows, log, wide); });
  visit_wide(y.dtype(), [&]<class T>() {
    for (std::int64_t row = 0; row < rows.outer; ++row)
      softmax_gradient_row(rows.n, y.data<T>() + row * rows.n, grad.data<T>() + row * rows.n, log,
                           out.data<T>() + row * rows.n);
  });
}

template <class Stored, class T>
DDPRUN_VECTORIZED void add_bias_rows(const Axis& axis, const T* bias, Stored* x) {
  for (std::int64_t outer = 0; outer < axis.outer; ++outer) {
    if (axis.inner == 1) {
      for (std::int64_t c = 0; c < axis.n; ++c) x[c] = static_cast<Stored>(static_cast<T>(x[c]) + bias[c]);
      x += axis.n;
      continue;
    }
    for (std::int64_t c = 0; c < axis.n; ++c, x += axis.inner) {
      const T add = bias[c];
      for (std::int64_t i = 0; i < axis.inner; ++i) x[i] = static_cast<Stored>(static_cast<T>(x[i]) + add);
    }
  }
}

template <class Stored, class T>
DDPRUN_VECTORIZED void add_channel_sums(const Axis& axis, const Stored* grad, T* out) {
  for (std::int64_t outer = 0; outer < axis.outer; ++outer) {
    if (axis.inner == 1) {
      for (std::int64_t c = 0; c < axis.n; ++c) out[c] += static_cast<T>(grad[c]);
      grad += axis.n;
      continue;
    }
    for (std::int64_t c = 0; c < axis.n; ++c, grad += axis.inner) {
      out[c] += lane_sum<T>(
          axis.inner, [grad](std::int64_t i) __attribute__((always_inline)) { return static_cast<T>(grad[i]); });
    }
  }
}

void add_bias(Tensor& x, const Tensor& bias, std::int64_t outer, std::int64_t inner) {
  const Tensor wide = widened(bias);
  visit_floating(x.dtype(), [&]<class Stored>() {
    add_bias_rows({outer, bias.numel(), inner}, wide.data<Computed<Stored>>(), x.data<Stored>());
  });
}

void sum_to_bias(const Tensor& grad, std::int64_t outer, std::int64_t inner, Tensor& out, bool accumulate) {
  if (!accumulate) out.fill(0);
  // out may be float32 while grad has 16 bits.
  if (is_16_bit(out)) {
    return with_wide(out, [&](Tensor& wide) { sum_to_bias(grad, outer, inner, wide, true); });
  }
  visit_floating(grad.dtype(), [&]<class Stored>() {
    add_channel_sums({outer, out.numel(), inner}, grad.data<Stored>(), out.data<Computed<Stored>>());
  });
}

}  // namespace

void add_reductions(kernels::Table& table) {
  table.sum = sum;
  table.max = max;
  table.softmax = softmax;
  table.softmax_gradient = softmax_gradient;
  table.add_bias = add_bias;
  table.sum_to_bias = sum_to_bias;
}

}  // namespace ddprun::cpu
