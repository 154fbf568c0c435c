#include "worker/parallel/forms/tensor/cross_entropy.h"

#include <cmath>
#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/placement_check.h"
#include "worker/tensor/kernels.h"
#include "worker/tensor/shape_only.h"

namespace ddprun {
namespace {

// Marks instead of a target among this rank's classes: it is another rank's, or the row does not count.
constexpr std::int64_t elsewhere = -1, ignored = -2;

Tensor own_targets(const Tensor& targets, std::int64_t classes, const CountedGroup& group, std::int64_t ignore_index) {
  const Tensor dense = targets.contiguous();
  Tensor own = Tensor::empty_like(dense);
  const auto* target = dense.data<std::int64_t>();
  const std::int64_t first = classes * group.rank(), all = classes * group.size();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    std::int64_t& at = own.data<std::int64_t>()[i];
    if (target[i] == ignore_index) {
      at = ignored;
    } else if (target[i] < 0 || target[i] >= all) {
      throw make_error(Errc::usage, "cross_entropy: target {} of row {} is not one of the {} classes", target[i], i,
                       all);
    } else {
      at = target[i] >= first && target[i] < first + classes ? target[i] - first : elsewhere;
    }
  }
  return own;
}

std::int64_t count_rows(const Tensor& targets) {
  const auto* target = targets.data<std::int64_t>();
  std::int64_t count = 0;
  for (std::int64_t i = 0; i < targets.numel(); ++i) count += target[i] != ignored;
  return count;
}

// Returns for each row the logarithm of the sum of its exponentials over this rank's classes, from their log-softmax.
template <class T>
std::vector<double> log_sums(const Tensor& scores, const Tensor& log_probabilities) {
  const Tensor largest = kernels::argmax_rows(scores);
  if (shapes_only()) return std::vector<double>(static_cast<std::size_t>(scores.size(0)));
  const std::int64_t classes = scores.size(1);
  std::vector<double> sums;
  for (std::int64_t row = 0; row < scores.size(0); ++row) {
    const std::int64_t at = row * classes + largest.data<std::int64_t>()[row];
    sums.push_back(static_cast<double>(scores.data<T>()[at]) - static_cast<double>(log_probabilities.data<T>()[at]));
  }
  return sums;
}

// Returns these logarithms over all classes.
std::vector<double> log_sums_of_all(std::vector<double> sums, CountedGroup& group) {
  std::vector<double> largest = sums;
  reduce_over(group, largest, ReduceOp::max);
  const std::size_t count = shapes_only() ? 0 : sums.size();
  for (std::size_t i = 0; i < count; ++i) sums[i] = std::exp(sums[i] - largest[i]);
  reduce_over(group, sums, ReduceOp::sum);
  for (std::size_t i = 0; i < count; ++i) sums[i] = largest[i] + std::log(sums[i]);
  return sums;
}

// Makes log-probabilities over this rank's classes those over all classes; returns each row's loss.
template <class T>
std::vector<double> complete(Tensor& log_probabilities, const std::vector<double>& own, const std::vector<double>& all,
                             const Tensor& targets) {
  const std::int64_t classes = log_probabilities.size(1);
  std::vector<double> losses(own.size(), 0.0);
  if (shapes_only()) return losses;
  for (std::size_t row = 0; row < own.size(); ++row) {
    T* values = log_probabilities.data<T>() + static_cast<std::int64_t>(row) * classes;
    const T shift = static_cast<T>(own[row] - all[row]);
    for (std::int64_t c = 0; c < classes; ++c) values[c] += shift;
    const std::int64_t target = targets.data<std::int64_t>()[row];
    if (target >= 0) losses[row] = -static_cast<double>(values[target]);
  }
  return losses;
}

// Returns factor * (probabilities - 1 at the target).
template <class T>
Tensor gradient_of(const Tensor& log_probabilities, const Tensor& targets, double factor) {
  Tensor gradient = kernels::scale(kernels::unary(kernels::Unary::exp, log_probabilities), factor);
  if (shapes_only()) return gradient;
  const std::int64_t classes = gradient.size(1);
  for (std::int64_t row = 0; row < gradient.size(0); ++row) {
    T* values = gradient.data<T>() + row * classes;
    const std::int64_t target = targets.data<std::int64_t>()[row];
    if (target == ignored) std::fill(values, values + classes, T(0));
    if (target >= 0) values[target] -= static_cast<T>(factor);
  }
  return gradient;
}

template <class Function>
auto by_type(DType dtype, Function function) {
  return dtype == DType::float64 ? function(double()) : function(float());
}

void check(const Variable& scores, const Tensor& targets) {
  if (scores.shape().size() == 2 && targets.shape() == Shape{scores.shape()[0]} && targets.dtype() == DType::int64)
    return;
  throw make_error(Errc::mismatch, "cross_entropy: {} targets of shape {} do not fit scores of shape {}",
                   name_of(targets.dtype()), to_string(targets.shape()), to_string(scores.shape()));
}

}  // namespace

Variable vocabulary_parallel_cross_entropy(const Variable& given, const Tensor& given_targets, CountedGroup& group,
                                           std::int64_t ignore_index) {
  const Variable scores = autograd::autocast(autograd::CastClass::float32, given);
  const autograd::Function operation("vocabulary_parallel_cross_entropy", {scores}, {given_targets});
  check(scores, given_targets);
  const Tensor x = scores.value().contiguous();
  const Tensor targets = own_targets(given_targets, x.size(1), group, ignore_index);
  Tensor log_probabilities = Tensor::empty_like(x);
  kernels::of(x).softmax(x, {x.size(0), x.size(1), 1}, true, log_probabilities);
  std::vector<double> losses = by_type(x.dtype(), [&]<class T>(T) {
    const std::vector<double> own = log_sums<T>(x, log_probabilities);
    return complete<T>(log_probabilities, own, log_sums_of_all(own, group), targets);
  });
  reduce_over(group, losses, ReduceOp::sum);
  double sum = 0;
  for (const double loss : losses) sum += loss;
  const auto count = static_cast<double>(count_rows(targets));
  Variable loss = operation.record(
      Tensor::full({}, sum / count, x.dtype()), {log_probabilities, targets}, [count](autograd::Backward& pass) {
        const Tensor& saved = pass.saved(0);
        const double factor = pass.grad().item() / count;
        pass.add(0, by_type(saved.dtype(), [&]<class T>(T) { return gradient_of<T>(saved, pass.saved(1), factor); }));
      });
  return autograd::placed(operation, scores, "tensor", {.from_local = true, .to_local = false}, std::move(loss));
}

}  // namespace ddprun
