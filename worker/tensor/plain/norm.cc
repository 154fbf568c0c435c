#include <vector>

#include "ddprun/worker/tensor/plain/lanes.h"
#include "ddprun/worker/tensor/plain/loops.h"
#include "ddprun/worker/tensor/plain/vectorize.h"

// Rows (the inner dimension) are summed in lanes, rows together in double: the batch's statistics then lose nothing to
// its size.
namespace ddprun::plain {
namespace {

// totals[c] = the sum of term(c, position) over all positions of channel c.
template <class T, class Term>
[[gnu::always_inline]] inline std::vector<double> channel_sums(Channels shape, Term term) {
  std::vector<double> totals(static_cast<std::size_t>(shape.channels), 0.0);
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const std::int64_t row = (outer * shape.channels + c) * shape.inner;
      totals[static_cast<std::size_t>(c)] +=
          static_cast<double>(lane_sum<T>(shape.inner, [&](std::int64_t i) { return term(c, row + i); }));
    }
  }
  return totals;
}

}  // namespace

template <class T>
DDPRUN_VECTORIZED void Norm<T>::statistics(Channels shape, const T* x, T* mean, T* variance) {
  const double count = static_cast<double>(shape.outer * shape.inner);
  const auto sums = channel_sums<T>(shape, [x](std::int64_t, std::int64_t at) { return x[at]; });
  for (std::int64_t c = 0; c < shape.channels; ++c) mean[c] = static_cast<T>(sums[static_cast<std::size_t>(c)] / count);
  const auto squares = channel_sums<T>(shape, [x, mean](std::int64_t c, std::int64_t at) {
    const T distance = x[at] - mean[c];
    return distance * distance;
  });
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    variance[c] = static_cast<T>(squares[static_cast<std::size_t>(c)] / count);
  }
}

template <class T>
DDPRUN_VECTORIZED void Norm<T>::forward(Channels shape, const T* x, const T* mean, const T* inverse, const T* weight,
                                        const T* bias, T* y) {
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; ++c, x += shape.inner, y += shape.inner) {
      const T factor = inverse[c] * weight[c];
      for (std::int64_t i = 0; i < shape.inner; ++i) y[i] = (x[i] - mean[c]) * factor + bias[c];
    }
  }
}

// With h = (x - mean) inverse over n values of a channel: d bias = sum grad, d weight = sum grad h, and
// d x = weight inverse (grad - d bias / n - h d weight / n), the last two terms only where the statistics are x's own.
template <class T>
DDPRUN_VECTORIZED void Norm<T>::backward(Channels shape, const BackwardInput& in, T* x_grad, T* weight_grad,
                                         T* bias_grad) {
  const auto [x, grad, mean, inverse, weight, training] = in;
  const auto sums = channel_sums<T>(shape, [grad](std::int64_t, std::int64_t at) { return grad[at]; });
  const auto products =
      channel_sums<T>(shape, [x, grad, mean](std::int64_t c, std::int64_t at) { return grad[at] * (x[at] - mean[c]); });
  const double count = static_cast<double>(shape.outer * shape.inner);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    bias_grad[c] = static_cast<T>(sums[static_cast<std::size_t>(c)]);
    weight_grad[c] = static_cast<T>(products[static_cast<std::size_t>(c)] * static_cast<double>(inverse[c]));
  }
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; ++c) {
      const std::int64_t row = (outer * shape.channels + c) * shape.inner;
      const T factor = inverse[c] * weight[c], center = mean[c];
      const T shift = training ? static_cast<T>(static_cast<double>(bias_grad[c]) / count) : T(0);
      const T slope = training ? static_cast<T>(static_cast<double>(weight_grad[c]) / count) * inverse[c] : T(0);
      for (std::int64_t i = row; i < row + shape.inner; ++i) {
        x_grad[i] = factor * (grad[i] - shift - (x[i] - center) * slope);
      }
    }
  }
}

template struct Norm<float>;
template struct Norm<double>;

}  // namespace ddprun::plain
