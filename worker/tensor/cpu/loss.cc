#include <algorithm>

#include "worker/tensor/cpu/lanes.h"
#include "worker/tensor/cpu/table.h"
#include "worker/tensor/cpu/vectorize.h"
#include "worker/tensor/cpu/visit_dtype.h"
#include "worker/tensor/functors/math.h"

namespace ddprun::cpu {
namespace {

using kernels::CrossEntropyOptions;

std::int64_t counted_rows(const Tensor& targets, const CrossEntropyOptions& options) {
  const std::int64_t* target = targets.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) count += target[i] != options.ignore_index;
  return count;
}

// With smoothing s over C classes the target distribution is 1 - s at the target plus s / C everywhere.
Tensor nll_loss(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options) {
  const std::int64_t rows = log_probabilities.size(0), classes = log_probabilities.size(1);
  Tensor out = Tensor::empty({}, log_probabilities.dtype(), log_probabilities.device());
  const std::int64_t* target = targets.data<std::int64_t>();
  const double smoothing = options.label_smoothing;
  visit_floating(out.dtype(), [&]<class T>() {
    using C = ComputeType<T>;
    const T* row = log_probabilities.data<T>();
    double total = 0;
    for (std::int64_t i = 0; i < rows; ++i, row += classes) {
      if (target[i] == options.ignore_index) continue;
      total -= (1 - smoothing) * static_cast<double>(static_cast<C>(row[target[i]]));
      if (smoothing == 0) continue;
      const C all = lane_sum<C>(classes, [row](std::int64_t c) { return static_cast<C>(row[c]); });
      total -= smoothing / static_cast<double>(classes) * static_cast<double>(all);
    }
    *out.data<T>() = T(static_cast<C>(total / static_cast<double>(counted_rows(targets, options))));
  });
  return out;
}

Tensor nll_loss_backward(const Tensor& log_probabilities, const Tensor& targets, const CrossEntropyOptions& options,
                         double factor) {
  Tensor out = Tensor::zeros_like(log_probabilities);
  const std::int64_t rows = out.size(0), classes = out.size(1);
  const std::int64_t* target = targets.data<std::int64_t>();
  const double share = factor / static_cast<double>(counted_rows(targets, options));
  visit_floating(out.dtype(), [&]<class T>() {
    using C = ComputeType<T>;
    T* row = out.data<T>();
    const C everywhere = static_cast<C>(-share * options.label_smoothing / static_cast<double>(classes));
    const C at_target = static_cast<C>(-share * (1 - options.label_smoothing));
    for (std::int64_t i = 0; i < rows; ++i, row += classes) {
      if (target[i] == options.ignore_index) continue;
      if (options.label_smoothing != 0)
        for (std::int64_t c = 0; c < classes; ++c) row[c] = T(everywhere);
      row[target[i]] = T(static_cast<C>(row[target[i]]) + at_target);
    }
  });
  return out;
}

// factor * (exp(log_probabilities) - the target distribution)
template <class T>
DDPRUN_VECTORIZED void cross_entropy_gradient_row(std::int64_t classes, const T* log_probabilities, std::int64_t target,
                                                  double smoothing, double factor, T* out) {
  using C = ComputeType<T>;
  const C scale = static_cast<C>(factor);
  const C everywhere = static_cast<C>(smoothing / static_cast<double>(classes));
  for (std::int64_t c = 0; c < classes; ++c)
    out[c] = T(scale * (functor::exp(static_cast<C>(log_probabilities[c])) - everywhere));
  out[target] = T(static_cast<C>(out[target]) - static_cast<C>(factor * (1 - smoothing)));
}

Tensor cross_entropy_backward(const Tensor& log_probabilities, const Tensor& targets,
                              const CrossEntropyOptions& options, double factor) {
  Tensor out = Tensor::empty_like(log_probabilities);
  const std::int64_t rows = out.size(0), classes = out.size(1);
  const std::int64_t* target = targets.data<std::int64_t>();
  const double share = factor / static_cast<double>(counted_rows(targets, options));
  visit_floating(out.dtype(), [&]<class T>() {
    for (std::int64_t i = 0; i < rows; ++i) {
      T* row = out.data<T>() + i * classes;
      if (target[i] == options.ignore_index)
        std::fill_n(row, classes, T(ComputeType<T>(0)));
      else
        cross_entropy_gradient_row(classes, log_probabilities.data<T>() + i * classes, target[i],
                                   options.label_smoothing, share, row);
    }
  });
  return out;
}

// Goes by rows of scores that are read and written while they are in the caches.
kernels::LinearLoss linear_cross_entropy(const Tensor& input, const Tensor& weight, const Tensor& targets,
                                         const kernels::LinearLossOptions& options, DType loss, bool gradients) {
  const std::int64_t rows = input.size(0), classes = weight.size(0);
  const CrossEntropyOptions& each = options.cross_entropy;
  const DType wide = input.dtype() == DType::float64 ? DType::float64 : DType::float32;
  const std::int64_t counted = counted_rows(targets, each);
  kernels::LinearLoss result;
  result.share = Tensor::full({}, counted > 0 ? 1 / static_cast<double>(counted) : 0, wide, input.device());
  if (gradients) {
    result.input = Tensor::empty(input.shape(), wide, input.device());
    result.weight = Tensor::zeros(weight.shape(), wide, input.device());
  }
  double total = 0;
  const std::int64_t step = options.chunk_rows(classes, size_of(input.dtype()));
  for (std::int64_t first = 0; first < rows; first += step) {
    const std::int64_t count = std::min(step, rows - first);
    const Tensor x = input.slice(0, first, count), target = targets.slice(0, first, count);
    const std::int64_t own = counted_rows(target, each);
    Tensor scores = Tensor::empty({count, classes}, input.dtype(), input.device());
    const kernels::Table& cpu = kernels::of(scores);
    cpu.matmul(x, weight, scores, {.transpose_b = true});
    Tensor log_probabilities = scores.to(wide);
    cpu.softmax(log_probabilities.clone(), {count, classes, 1}, true, log_probabilities);
    if (own > 0) total += cpu.nll_loss(log_probabilities, target, each).item() * static_cast<double>(own);
    if (!gradients) continue;
    const Tensor slope = cpu.cross_entropy_backward(log_probabilities, target, each, static_cast<double>(own));
    Tensor part = result.input.slice(0, first, count);
    cpu.matmul(slope.to(input.dtype()), weight, part, {});
    cpu.matmul(slope.to(input.dtype()), x, result.weight, {.transpose_a = true, .accumulate = true});
  }
  result.loss = Tensor::full({}, total / static_cast<double>(counted), loss, input.device());
  return result;
}

void scale_by(const Tensor& x, const Tensor& a, const Tensor& b, Tensor& out, bool accumulate) {
  Tensor scaled = kernels::scale(x, a.item() * b.item());
  if (accumulate && out.dtype() == scaled.dtype())
    kernels::add_in_place(out, scaled);
  else if (accumulate)
    kernels::copy(kernels::add(scaled, out.to(scaled.dtype())), out);
  else
    kernels::copy(scaled, out);
}

}  // namespace

void add_losses(kernels::Table& table) {
  table.nll_loss = nll_loss;
  table.nll_loss_backward = nll_loss_backward;
  table.cross_entropy_backward = cross_entropy_backward;
  table.linear_cross_entropy = linear_cross_entropy;
  table.scale_by = scale_by;
}

}  // namespace ddprun::cpu
