#include <cmath>

#include "worker/optim/host_loop.h"
#include "worker/optim/makers.h"
#include "worker/optim/square_sum.h"

namespace ddprun::optim {
namespace {

template <class T>
void lars_step(std::int64_t count, T* value, const T* gradient, T* momentum, T rate, T factor, T weight_decay) {
  for (std::int64_t i = 0; i < count; ++i) {
    momentum[i] = factor * momentum[i] + rate * (gradient[i] + weight_decay * value[i]);
    value[i] -= momentum[i];
  }
}

// You et al., "Large batch training of convolutional networks" (2017), algorithm 1. With g the gradient, p the
// parameter, and the Euclidean norms of the whole tensor: rate = lr trust_coefficient |p| / (|g| + weight_decay |p|),
// v = momentum v + rate (g + weight_decay p), p -= v; where a norm is 0, rate is lr. State: momentum_buffer (v).
class Lars : public Optimizer {
 public:
  Lars(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> momentum_;
  std::vector<double> square_sums_;  // by parameter of a group, of itself and of its gradient; used within an update
};

}  // namespace

Lars::Lars(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : Optimizer(std::move(groups), options), momentum_(add_state("momentum_buffer")) {}

void Lars::update(const GroupStep& group) {
  square_sums_.clear();
  for_each(group, [&](std::size_t, Tensor& value, const Tensor& gradient) {
    with_host_type("lars_step", value, [&]<class T>() {
      square_sums_.push_back(square_sum(value.numel(), value.data<T>()));
      square_sums_.push_back(square_sum(value.numel(), gradient.data<T>()));
    });
  });
  add_up(group, square_sums_);
  auto next = square_sums_.begin();
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    const double norm = std::sqrt(*next++), gradient_norm = std::sqrt(*next++);
    with_host_type("lars_step", value, [&]<class T>() {
      const double trust = norm > 0 && gradient_norm > 0
                               ? options().trust_coefficient * norm / (gradient_norm + group.weight_decay * norm)
                               : 1;
      lars_step<T>(value.numel(), value.data<T>(), gradient.data<T>(), momentum_[index].data<T>(),
                   static_cast<T>(group.lr * trust), static_cast<T>(options().momentum),
                   static_cast<T>(group.weight_decay));
    });
  });
}

std::unique_ptr<Optimizer> make_lars(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Lars>(std::move(groups), options);
}

}  // namespace ddprun::optim
