#include <algorithm>
#include <cmath>
#include <vector>

#include "worker/tensor/cpu/lanes.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"

// Rows (the inner dimension) are summed in lanes, rows together in double: the batch's statistics then lose nothing to
// its size.
namespace ddprun::cpu {
namespace {

using kernels::Axis;
using kernels::NormGradients;
using kernels::NormStatistics;

// Memory is (outer, channels, inner); blocked by B channels: (outer, channels / B, inner, B).
struct Channels {
  std::int64_t outer, channels, inner;
};

// Positions of a blocked channel that are summed as they are before the sum is added to a double.
constexpr std::int64_t short_run = 64;

// Adds the sums of term(channel, position) over positions [from, to) of B channels from c on, which begin at `begin`.
template <class T, int B, class Term>
[[gnu::always_inline]] inline void add_block_sums(std::int64_t c, std::int64_t begin, std::int64_t from,
                                                  std::int64_t to, Term term, double* totals) {
  T lanes[B] = {};
  for (std::int64_t i = from; i < to; ++i)
    for (std::int64_t lane = 0; lane < B; ++lane) lanes[lane] += term(c + lane, begin + i * B + lane);
  for (std::int64_t lane = 0; lane < B; ++lane) totals[c + lane] += static_cast<double>(lanes[lane]);
}

// totals[c] = the sum of term(c, position) over all positions of channel c.
template <class T, int B, class Term>
[[gnu::always_inline]] inline std::vector<double> channel_sums(Channels shape, Term term) {
  std::vector<double> totals(static_cast<std::size_t>(shape.channels), 0.0);
  std::int64_t begin = 0;
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; c += B, begin += B * shape.inner) {
      if constexpr (B == 1) {
        totals[static_cast<std::size_t>(c)] +=
            static_cast<double>(lane_sum<T>(shape.inner, [&](std::int64_t i) { return term(c, begin + i); }));
      } else {
        for (std::int64_t i = 0; i < shape.inner; i += short_run)
          add_block_sums<T, B>(c, begin, i, std::min(i + short_run, shape.inner), term, totals.data());
      }
    }
  }
  return totals;
}

// out[position] = function(position, lane) for each position of B channels that begin at `begin`.
template <class E, int B, class Function>
[[gnu::always_inline]] inline void fill_block(std::int64_t inner, std::int64_t begin, E* out, Function function) {
  for (std::int64_t i = 0; i < inner; ++i)
    for (std::int64_t lane = 0; lane < B; ++lane)
      out[begin + i * B + lane] = static_cast<E>(function(begin + i * B + lane, lane));
}

// Images have elements of type E, of 16 bits perhaps; statistics, parameters and arithmetic are of its compute type.

template <class E, int B, class T = ComputeType<E>>
DDPRUN_VECTORIZED void channel_statistics(Channels shape, const E* image, T* mean, T* variance) {
  const auto x = [image](std::int64_t at) { return static_cast<T>(image[at]); };
  const double count = static_cast<double>(shape.outer * shape.inner);
  const auto sums = channel_sums<T, B>(shape, [x](std::int64_t, std::int64_t at) { return x(at); });
  for (std::int64_t c = 0; c < shape.channels; ++c) mean[c] = static_cast<T>(sums[static_cast<std::size_t>(c)] / count);
  const auto squares = channel_sums<T, B>(shape, [x, mean](std::int64_t c, std::int64_t at) {
    const T distance = x(at) - mean[c];
    return distance * distance;
  });
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    variance[c] = static_cast<T>(squares[static_cast<std::size_t>(c)] / count);
  }
}

template <class E, int B, class T = ComputeType<E>>
DDPRUN_VECTORIZED void normalize(Channels shape, const E* x, const T* mean, const T* inverse, const T* weight,
                                 const T* bias, E* y) {
  std::int64_t begin = 0;
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; c += B, begin += B * shape.inner) {
      T center[B], factor[B], shift[B];
      for (std::int64_t lane = 0; lane < B; ++lane) {
        center[lane] = mean[c + lane];
        factor[lane] = inverse[c + lane] * weight[c + lane];
        shift[lane] = bias[c + lane];
      }
      fill_block<E, B>(shape.inner, begin, y, [&](std::int64_t at, std::int64_t lane) {
        return (static_cast<T>(x[at]) - center[lane]) * factor[lane] + shift[lane];
      });
    }
  }
}

template <class E, class T = ComputeType<E>>
struct BackwardInput {
  const E *x, *grad;
  const T *mean, *inverse, *weight;
  bool training;
};

// With h = (x - mean) inverse over n values of a channel: d bias = sum grad, d weight = sum grad h, and
// d x = weight inverse (grad - d bias / n - h d weight / n), the last two terms only where the statistics are x's own.
template <class E, int B, class T = ComputeType<E>>
DDPRUN_VECTORIZED void normalize_backward(Channels shape, const BackwardInput<E>& in, E* x_grad, T* weight_grad,
                                          T* bias_grad) {
  const auto [x_image, grad_image, mean, inverse, weight, training] = in;
  const auto x = [image = x_image](std::int64_t at) { return static_cast<T>(image[at]); };
  const auto grad = [image = grad_image](std::int64_t at) { return static_cast<T>(image[at]); };
  const auto sums = channel_sums<T, B>(shape, [grad](std::int64_t, std::int64_t at) { return grad(at); });
  const auto products = channel_sums<T, B>(
      shape, [x, grad, mean = mean](std::int64_t c, std::int64_t at) { return grad(at) * (x(at) - mean[c]); });
  const double count = static_cast<double>(shape.outer * shape.inner);
  for (std::int64_t c = 0; c < shape.channels; ++c) {
    bias_grad[c] = static_cast<T>(sums[static_cast<std::size_t>(c)]);
    weight_grad[c] = static_cast<T>(products[static_cast<std::size_t>(c)] * static_cast<double>(inverse[c]));
  }
  std::int64_t begin = 0;
  for (std::int64_t outer = 0; outer < shape.outer; ++outer) {
    for (std::int64_t c = 0; c < shape.channels; c += B, begin += B * shape.inner) {
      T center[B], factor[B], shift[B], slope[B];
      for (std::int64_t lane = 0; lane < B; ++lane) {
        const std::int64_t at = c + lane;
        center[lane] = mean[at];
        factor[lane] = inverse[at] * weight[at];
        shift[lane] = training ? static_cast<T>(static_cast<double>(bias_grad[at]) / count) : T(0);
        slope[lane] = training ? static_cast<T>(static_cast<double>(weight_grad[at]) / count) * inverse[at] : T(0);
      }
      fill_block<E, B>(shape.inner, begin, x_grad, [&](std::int64_t at, std::int64_t lane) {
        return factor[lane] * (grad(at) - shift[lane] - (x(at) - center[lane]) * slope[lane]);
      });
    }
  }
}

// Calls visit.template operator()<E, B>() for x's type and layout.
template <class Visit>
void visit_layout(const Tensor& x, Visit visit) {
  visit_floating(x.dtype(), [&]<class T>() {
    switch (x.channel_block()) {
      case 0:
        return visit.template operator()<T, 1>();
      case 8:
        return visit.template operator()<T, 8>();
      case 16:
        return visit.template operator()<T, 16>();
      default:
        throw make_error(Errc::unsupported, "batch_norm of images blocked by {} channels is not supported",
                         x.channel_block());
    }
  });
}

Channels channels_of(const Tensor& tensor, std::int64_t outer, std::int64_t inner) {
  return {outer, outer * inner == 0 ? 0 : tensor.numel() / (outer * inner), inner};
}

Tensor inverse_deviation(const Tensor& given, double eps) {
  const Tensor variance = widened(given);
  Tensor out = Tensor::empty_like(variance);
  visit_wide(variance.dtype(), [&]<class T>() {
    const T* from = variance.data<T>();
    std::transform(from, from + variance.numel(), out.data<T>(),
                   [eps](T value) { return static_cast<T>(1 / std::sqrt(static_cast<double>(value) + eps)); });
  });
  return out;
}

// Statistics of 16-bit images are float32.
DType statistics_type(const Tensor& x) {
  return is_16_bit(x) ? DType::float32 : x.dtype();
}

NormStatistics batch_statistics(const Tensor& x, std::int64_t outer, std::int64_t inner, double eps, Tensor& variance) {
  const Channels shape = channels_of(x, outer, inner);
  variance = Tensor::empty({shape.channels}, statistics_type(x), x.device());
  NormStatistics result{Tensor::empty_like(variance), Tensor()};
  visit_layout(x, [&]<class E, int B>() {
    using T = ComputeType<E>;
    channel_statistics<E, B>(shape, x.elements<E>(), result.mean.data<T>(), variance.data<T>());
  });
  result.inverse = inverse_deviation(variance, eps);
  return result;
}

NormStatistics widened_statistics(const NormStatistics& statistics) {
  return {widened(statistics.mean), widened(statistics.inverse)};
}

Tensor batch_norm(const Tensor& x, std::int64_t outer, std::int64_t inner, const NormStatistics& statistics,
                  const Tensor& weight, const Tensor& bias) {
  if (is_16_bit(weight) || is_16_bit(statistics.mean))
    return batch_norm(x, outer, inner, widened_statistics(statistics), widened(weight), widened(bias));
  Tensor y = Tensor::empty_like(x);
  visit_layout(x, [&]<class E, int B>() {
    using T = ComputeType<E>;
    normalize<E, B>(channels_of(x, outer, inner), x.elements<E>(), statistics.mean.data<T>(),
                    statistics.inverse.data<T>(), weight.data<T>(), bias.data<T>(), y.elements<E>());
  });
  return y;
}

NormGradients narrowed(NormGradients gradients, const Tensor& x, const Tensor& weight) {
  gradients.x = gradients.x.to(x.dtype());
  if (gradients.weight.defined()) gradients.weight = gradients.weight.to(weight.dtype());
  if (gradients.bias.defined()) gradients.bias = gradients.bias.to(weight.defined() ? weight.dtype() : x.dtype());
  return gradients;
}

NormGradients batch_norm_backward(const Tensor& x, const Tensor& grad, std::int64_t outer, std::int64_t inner,
                                  const NormStatistics& statistics, const Tensor& weight, bool training) {
  if (is_16_bit(weight) || is_16_bit(statistics.mean)) {
    return narrowed(
        batch_norm_backward(x, grad, outer, inner, widened_statistics(statistics), widened(weight), training), x,
        weight);
  }
  NormGradients out{Tensor::empty_like(x), Tensor::empty_like(weight), Tensor::empty_like(weight)};
  visit_layout(x, [&]<class E, int B>() {
    using T = ComputeType<E>;
    normalize_backward<E, B>(channels_of(x, outer, inner),
                             {x.elements<E>(), grad.elements<E>(), statistics.mean.data<T>(),
                              statistics.inverse.data<T>(), weight.data<T>(), training},
                             out.x.elements<E>(), out.weight.data<T>(), out.bias.data<T>());
  });
  return out;
}

// --- layer, group and RMS normalization: statistics of a row of channels * inner values

template <class T>
struct RowStatistics {
  T mean, inverse;
};

template <class T>
DDPRUN_VECTORIZED RowStatistics<T> row_statistics(std::int64_t count, const T* x, bool centred, double eps) {
  const T n = static_cast<T>(count);
  const T mean = centred ? lane_sum<T>(
                               count, [x](std::int64_t i) __attribute__((always_inline)) { return x[i]; }) /
                               n
                         : T(0);
  const T variance = lane_sum<T>(
                         count, [ x, mean ](std::int64_t i) __attribute__((always_inline)) {
                           const T distance = x[i] - mean;
                           return distance * distance;
                         }) /
                     n;
  return {mean, static_cast<T>(1 / std::sqrt(static_cast<double>(variance) + eps))};
}

// weight and bias: those of this row's channels, or null.
template <class T>
DDPRUN_VECTORIZED void normalize_row(const Axis& axis, const T* x, RowStatistics<T> row, const T* weight, const T* bias,
                                     T* y) {
  if (axis.inner == 1 && weight != nullptr && bias != nullptr) {
    for (std::int64_t c = 0; c < axis.n; ++c) y[c] = (x[c] - row.mean) * row.inverse * weight[c] + bias[c];
    return;
  }
  for (std::int64_t c = 0; c < axis.n; ++c) {
    const T factor = weight != nullptr ? weight[c] : T(1), shift = bias != nullptr ? bias[c] : T(0);
    for (std::int64_t i = c * axis.inner; i < (c + 1) * axis.inner; ++i)
      y[i] = (x[i] - row.mean) * row.inverse * factor + shift;
  }
}

// With h = (x - mean) inverse over the n values of a row and g = grad weight:
// d x = inverse (g - mean(g) - h mean(g h)), the middle term only where the mean was subtracted.
template <class T>
DDPRUN_VECTORIZED void row_backward(const Axis& axis, const T* x, const T* grad, RowStatistics<T> row, bool centred,
                                    const T* weight, T* scaled, T* x_grad, T* weight_grad, T* bias_grad) {
  const std::int64_t count = axis.n * axis.inner;
  if (axis.inner == 1 && weight != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) scaled[i] = grad[i] * weight[i];
  } else {
    for (std::int64_t c = 0; c < axis.n; ++c) {
      const T factor = weight != nullptr ? weight[c] : T(1);
      for (std::int64_t i = c * axis.inner; i < (c + 1) * axis.inner; ++i) scaled[i] = grad[i] * factor;
    }
  }
  const T n = static_cast<T>(count);
  const T total = centred ? lane_sum<T>(
                                count, [scaled](std::int64_t i) __attribute__((always_inline)) { return scaled[i]; }) /
                                n
                          : T(0);
  const T product = lane_sum<T>(
                        count, [=
  ](std::int64_t i) __attribute__((always_inline)) { return scaled[i] * ((x[i] - row.mean) * row.inverse); }) /
                    n;
  for (std::int64_t i = 0; i < count; ++i)
    x_grad[i] = row.inverse * (scaled[i] - total - (x[i] - row.mean) * row.inverse * product);
  if (axis.inner == 1 && weight_grad != nullptr && bias_grad != nullptr) {
    for (std::int64_t i = 0; i < count; ++i) {
      weight_grad[i] += grad[i] * ((x[i] - row.mean) * row.inverse);
      bias_grad[i] += grad[i];
    }
    return;
  }
  for (std::int64_t c = 0; c < axis.n && weight_grad != nullptr; ++c) {
    for (std::int64_t i = c * axis.inner; i < (c + 1) * axis.inner; ++i)
      weight_grad[c] += grad[i] * ((x[i] - row.mean) * row.inverse);
  }
  for (std::int64_t c = 0; c < axis.n && bias_grad != nullptr; ++c) {
    for (std::int64_t i = c * axis.inner; i < (c + 1) * axis.inner; ++i) bias_grad[c] += grad[i];
  }
}

// Returns where the parameters of a row begin: rows of one sample take successive groups of channels.
std::int64_t first_channel(std::int64_t row, const Axis& axis, const Tensor& parameter) {
  return parameter.defined() ? row * axis.n % parameter.numel() : 0;
}
template <class T>
T* at_channel(const Tensor& parameter, std::int64_t channel) {
  return parameter.defined() ? const_cast<T*>(parameter.data<T>()) + channel : nullptr;
}

Tensor group_norm(const Tensor& x, const Axis& axis, bool centred, double eps, const Tensor& weight, const Tensor& bias,
                  DType result, NormStatistics& statistics) {
  if (is_16_bit(x))
    return group_norm(widened(x), axis, centred, eps, widened(weight), widened(bias), DType::float32, statistics)
        .to(result);
  Tensor y = Tensor::empty_like(x);
  statistics = {Tensor::empty({axis.outer}, x.dtype(), x.device()), Tensor::empty({axis.outer}, x.dtype(), x.device())};
  const std::int64_t count = axis.n * axis.inner;
  visit_wide(x.dtype(), [&]<class T>() {
    for (std::int64_t r = 0; r < axis.outer; ++r) {
      const T* from = x.data<T>() + r * count;
      const RowStatistics<T> row = row_statistics(count, from, centred, eps);
      statistics.mean.data<T>()[r] = row.mean;
      statistics.inverse.data<T>()[r] = row.inverse;
      const std::int64_t channel = first_channel(r, axis, weight.defined() ? weight : bias);
      normalize_row<T>(axis, from, row, at_channel<T>(weight, channel), at_channel<T>(bias, channel),
                       y.data<T>() + r * count);
    }
  });
  return y.to(result);
}

NormGradients group_norm_backward(const Tensor& x, const Tensor& grad, const Axis& axis, bool centred,
                                  const NormStatistics& statistics, const Tensor& weight, bool has_bias) {
  if (is_16_bit(x))
    return narrowed(
        group_norm_backward(widened(x), widened(grad), axis, centred, statistics, widened(weight), has_bias), x,
        weight);
  NormGradients out{Tensor::empty_like(x), {}, {}};
  if (weight.defined()) out.weight = Tensor::zeros_like(weight);
  if (has_bias) out.bias = Tensor::zeros_like(weight);
  const std::int64_t count = axis.n * axis.inner;
  visit_wide(x.dtype(), [&]<class T>() {
    std::vector<T> scaled(static_cast<std::size_t>(count));
    for (std::int64_t r = 0; r < axis.outer; ++r) {
      const RowStatistics<T> row{statistics.mean.data<T>()[r], statistics.inverse.data<T>()[r]};
      const std::int64_t channel = first_channel(r, axis, weight);
      row_backward<T>(axis, x.data<T>() + r * count, grad.data<T>() + r * count, row, centred,
                      at_channel<T>(weight, channel), scaled.data(), out.x.data<T>() + r * count,
                      at_channel<T>(out.weight, channel), at_channel<T>(out.bias, channel));
    }
  });
  return out;
}

void add_or_copy(const Tensor& from, Tensor& to, bool accumulate) {
  if (!to.defined()) return;
  if (accumulate)
    kernels::add_in_place(to, from);
  else
    kernels::copy(from, to);
}

void row_norm_backward(const Tensor& x, const Tensor& grad, const Tensor& addend, const Axis& rows, bool centred,
                       const NormStatistics& statistics, const Tensor& weight, kernels::RowNormGradients& out) {
  NormGradients own =
      kernels::of(x).group_norm_backward(x, grad.to(x.dtype()), rows, centred, statistics, weight, out.bias.defined());
  if (addend.defined()) kernels::add_in_place(own.x, addend);
  if (out.x_copy.defined()) kernels::copy(own.x, out.x_copy);
  out.x = std::move(own.x);
  add_or_copy(own.weight, out.weight, out.accumulate_weight);
  add_or_copy(own.bias, out.bias, out.accumulate_bias);
}

}  // namespace

void add_normalization(kernels::Table& table) {
  table.batch_statistics = batch_statistics;
  table.inverse_deviation = inverse_deviation;
  table.batch_norm = batch_norm;
  table.batch_norm_backward = batch_norm_backward;
  table.group_norm = group_norm;
  table.group_norm_backward = group_norm_backward;
  table.row_norm_backward = row_norm_backward;
}

}  // namespace ddprun::cpu
