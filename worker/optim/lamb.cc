#include <algorithm>
#include <array>
#include <cmath>

#include "worker/optim/host_loop.h"
#include "worker/optim/makers.h"
#include "worker/optim/square_sum.h"

namespace ddprun::optim {
namespace {

// The update of some elements, computed from their means.
template <class T>
struct Direction {
  T correction, square_correction, eps, weight_decay;

  T operator()(T value, T average, T square_average) const {
    return average * correction / (std::sqrt(square_average * square_correction) + eps) + weight_decay * value;
  }
};

template <class T>
void update_means(std::int64_t count, const T* gradient, T* average, T* square_average, T beta1, T beta2, T rest1,
                  T rest2) {
  for (std::int64_t i = 0; i < count; ++i) {
    average[i] = beta1 * average[i] + rest1 * gradient[i];
    square_average[i] = beta2 * square_average[i] + rest2 * gradient[i] * gradient[i];
  }
}

// Computes in blocks: the sum needs no memory for the whole update.
template <class T>
double square_sum_of(const Direction<T>& direction, std::int64_t count, const T* value, const T* average,
                     const T* square_average) {
  constexpr std::int64_t size = 256;
  std::array<T, size> block;
  double sum = 0;
  for (std::int64_t begin = 0; begin < count; begin += size) {
    const std::int64_t n = std::min(size, count - begin);
    for (std::int64_t i = 0; i < n; ++i)
      block[static_cast<std::size_t>(i)] = direction(value[begin + i], average[begin + i], square_average[begin + i]);
    sum += square_sum(n, block.data());
  }
  return sum;
}

// You et al., "Large batch optimization for deep learning: training BERT in 76 minutes" (ICLR 2020), algorithm 2. With
// g the gradient, p the parameter, t the step, m and v Adam's means: r = m / (1 - beta1^t) / (sqrt(v / (1 - beta2^t)) +
// eps) + weight_decay p, p -= lr |p| / |r| r, with the Euclidean norms of the whole tensor; where one of them is 0,
// their ratio counts as 1. State: exp_avg (m) and exp_avg_sq (v) of each parameter, and the step count.
class Lamb : public Optimizer {
 public:
  Lamb(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> average_, square_average_;
  std::vector<double> square_sums_;  // by parameter of a group, of itself and of its update; used within an update
};

}  // namespace

Lamb::Lamb(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : Optimizer(std::move(groups), options), average_(add_state("exp_avg")), square_average_(add_state("exp_avg_sq")) {}

void Lamb::update(const GroupStep& group) {
  const double beta1 = options().beta1, beta2 = options().beta2;
  const auto steps = static_cast<double>(step_count());
  const auto direction_of = [&]<class T>(T) {
    return Direction<T>{.correction = static_cast<T>(1 / (1 - std::pow(beta1, steps))),
                        .square_correction = static_cast<T>(1 / (1 - std::pow(beta2, steps))),
                        .eps = static_cast<T>(options().eps),
                        .weight_decay = static_cast<T>(group.weight_decay)};
  };
  square_sums_.clear();
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    with_host_type("lamb_step", value, [&]<class T>() {
      const std::int64_t count = value.numel();
      T* const p = value.data<T>();
      T* const average = average_[index].data<T>();
      T* const square_average = square_average_[index].data<T>();
      update_means<T>(count, gradient.data<T>(), average, square_average, static_cast<T>(beta1), static_cast<T>(beta2),
                      static_cast<T>(1 - beta1), static_cast<T>(1 - beta2));
      square_sums_.push_back(square_sum(count, p));
      square_sums_.push_back(square_sum_of<T>(direction_of(T()), count, p, average, square_average));
    });
  });
  add_up(group, square_sums_);
  auto next = square_sums_.begin();
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor&) {
    const double norm = std::sqrt(*next++), update_norm = std::sqrt(*next++);
    with_host_type("lamb_step", value, [&]<class T>() {
      T* const p = value.data<T>();
      const T* const average = average_[index].data<T>();
      const T* const square_average = square_average_[index].data<T>();
      const auto direction = direction_of(T());
      const T factor = static_cast<T>(group.lr * (norm > 0 && update_norm > 0 ? norm / update_norm : 1));
      for (std::int64_t i = 0; i < value.numel(); ++i) p[i] -= factor * direction(p[i], average[i], square_average[i]);
    });
  });
}

std::unique_ptr<Optimizer> make_lamb(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Lamb>(std::move(groups), options);
}

}  // namespace ddprun::optim
