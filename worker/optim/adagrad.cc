#include <cmath>

#include "worker/optim/host_loop.h"
#include "worker/optim/makers.h"

namespace ddprun::optim {
namespace {

template <class T>
void adagrad_step(std::int64_t count, T* value, const T* gradient, T* sum, T lr, T weight_decay, T eps) {
  for (std::int64_t i = 0; i < count; ++i) {
    const T g = gradient[i] + weight_decay * value[i];
    sum[i] += g * g;
    value[i] -= lr * g / (std::sqrt(sum[i]) + eps);
  }
}

// Duchi et al., "Adaptive subgradient methods for online learning and stochastic optimization" (JMLR 2011), as
// PyTorch's Adagrad. With g the gradient plus weight_decay times the parameter p and t the step: s += g^2,
// p -= lr / (1 + (t - 1) lr_decay) g / (sqrt(s) + eps). State: sum (s) of each parameter, and the step count.
class Adagrad : public Optimizer {
 public:
  Adagrad(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;

  std::vector<Tensor> sum_;
};

}  // namespace

Adagrad::Adagrad(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : Optimizer(std::move(groups), options), sum_(add_state("sum")) {}

void Adagrad::update(const GroupStep& group) {
  const double lr = group.lr / (1 + static_cast<double>(step_count() - 1) * options().lr_decay);
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    with_host_type("adagrad_step", value, [&]<class T>() {
      adagrad_step<T>(value.numel(), value.data<T>(), gradient.data<T>(), sum_[index].data<T>(), static_cast<T>(lr),
                      static_cast<T>(group.weight_decay), static_cast<T>(options().eps));
    });
  });
}

std::unique_ptr<Optimizer> make_adagrad(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Adagrad>(std::move(groups), options);
}

}  // namespace ddprun::optim
