#include <algorithm>
#include <cmath>

#include "worker/optim/host_loop.h"
#include "worker/optim/makers.h"

namespace ddprun::optim {
namespace {

struct Step {
  double lr, weight_decay, alpha, eps, momentum;
};

// momentum and average: null without them.
template <class T>
void rmsprop_step(std::int64_t count, T* value, const T* gradient, T* square_average, T* momentum, T* average,
                  const Step& step) {
  const T lr = static_cast<T>(step.lr), decay = static_cast<T>(step.weight_decay), alpha = static_cast<T>(step.alpha),
          rest = static_cast<T>(1 - step.alpha), eps = static_cast<T>(step.eps), factor = static_cast<T>(step.momentum);
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] + decay * value[i];
    square_average[i] = alpha * square_average[i] + rest * g * g;
    T square = square_average[i];
    if (average != nullptr) {
      average[i] += rest * (g - average[i]);
      square = std::max(square - average[i] * average[i], T(0));  // rounding may make it negative
    }
    T update = g / (std::sqrt(square) + eps);
    if (momentum != nullptr) update = momentum[i] = factor * momentum[i] + update;
    value[i] -= lr * update;
  }
}

template <class T>
T* data_or_null(const std::vector<Tensor>& tensors, std::size_t index) {
  if (tensors.empty()) return nullptr;
  Tensor tensor = tensors[index];
  return tensor.data<T>();
}

// Tieleman and Hinton, "RMSprop" (Coursera, 2012), as PyTorch's RMSprop. With g the gradient plus weight_decay times
// the parameter p: s = alpha s + (1 - alpha) g^2, d = sqrt(s) + eps, p -= lr g / d. With momentum: b = momentum b + g /
// d, p -= lr b. Centered (Graves, 2013): a = alpha a + (1 - alpha) g, d = sqrt(s - a^2) + eps. State: square_avg (s),
// and where they are used momentum_buffer (b) and grad_avg (a).
class RmsProp : public Optimizer {
 public:
  RmsProp(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> square_average_, momentum_, average_;
};

}  // namespace

RmsProp::RmsProp(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : Optimizer(std::move(groups), options), square_average_(add_state("square_avg")) {
  if (options.momentum > 0) momentum_ = add_state("momentum_buffer");
  if (options.centered) average_ = add_state("grad_avg");
}

void RmsProp::update(const GroupStep& group) {
  const Step step{.lr = group.lr,
                  .weight_decay = group.weight_decay,
                  .alpha = options().alpha,
                  .eps = options().eps,
                  .momentum = options().momentum};
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    with_host_type("rmsprop_step", value, [&]<class T>() {
      rmsprop_step<T>(value.numel(), value.data<T>(), gradient.data<T>(), square_average_[index].data<T>(),
                      data_or_null<T>(momentum_, index), data_or_null<T>(average_, index), step);
    });
  });
}

std::unique_ptr<Optimizer> make_rmsprop(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<RmsProp>(std::move(groups), options);
}

}  // namespace ddprun::optim
