#include <algorithm>
#include <cmath>

#include "worker/optim/host_loop.h"
#include "worker/optim/makers.h"
#include "worker/optim/square_sum.h"

namespace ddprun::optim {
namespace {

// Weights of several experts are one parameter of three dimensions.
bool has_matrices(std::string_view name, const Shape& shape) {
  return !is_bias(name) && (shape.size() == 2 || shape.size() == 3);
}
bool has_no_matrices(std::string_view name, const Shape& shape) {
  return !has_matrices(name, shape);
}

template <class T>
void update_momentum(std::int64_t count, const T* gradient, T* momentum, T* direction, T factor, T rest,
                     bool nesterov) {
  for (std::int64_t i = 0; i < count; ++i) {
    momentum[i] = factor * momentum[i] + rest * gradient[i];
    direction[i] = nesterov ? rest * gradient[i] + factor * momentum[i] : momentum[i];
  }
}

template <class T>
void shrink_and_subtract(std::int64_t count, T* value, const T* direction, T shrink, T lr) {
  for (std::int64_t i = 0; i < count; ++i) value[i] = shrink * value[i] - lr * direction[i];
}

// out = a out + x y
void scale_and_add_product(Tensor& out, double a, const Tensor& x, const Tensor& y) {
  kernels::of(out).unary(kernels::Unary::scale, {.a = a}, out, out);
  kernels::of(out).matmul(x, y, out, {.accumulate = true});
}

// Brings singular values to about 1 and keeps singular vectors: X = a X + (b G + c G G) X with G = X X^T, and for a
// matrix that is higher than wide by the smaller G = X^T X from the right. The coefficients are Jordan's.
void make_orthogonal(Tensor& x, double eps, std::int64_t steps) {
  constexpr double a = 3.4445, b = -4.7750, c = 2.0315;
  const bool high = x.shape()[0] > x.shape()[1];
  const std::int64_t side = std::min(x.shape()[0], x.shape()[1]);
  const auto& kernels = kernels::of(x);
  kernels.unary(kernels::Unary::scale, {.a = 1 / std::max(std::sqrt(square_sum(x)), eps)}, x, x);
  Tensor gram = Tensor::empty({side, side}, x.dtype(), x.device());
  for (std::int64_t i = 0; i < steps; ++i) {
    kernels.matmul(x, x, gram, {.transpose_a = high, .transpose_b = !high});
    const Tensor scaled = kernels::scale(gram, c);
    Tensor factor = kernels::scale(gram, 1);
    scale_and_add_product(factor, b, scaled, gram);
    const Tensor before = kernels::scale(x, 1);
    scale_and_add_product(x, a, high ? before : factor, high ? factor : before);
  }
}

double adjusted_lr(double lr, const std::string& function, const Shape& shape) {
  const auto rows = static_cast<double>(shape[shape.size() - 2]), columns = static_cast<double>(shape.back());
  if (function == "match_rms_adamw") return lr * 0.2 * std::sqrt(std::max(rows, columns));
  return lr * std::sqrt(std::max(1.0, rows / columns));
}

// Jordan et al., "Muon: an optimizer for hidden layers in neural networks" (2024), as PyTorch's Muon. For a parameter p
// of two dimensions with the gradient g: v = momentum v + (1 - momentum) g, u = v, or with nesterov (1 - momentum) g +
// momentum v; u is made nearly orthogonal by ns_steps steps of a Newton-Schulz iteration; p *= 1 - lr weight_decay,
// p -= lr' u, where lr' is lr times sqrt(max(1, rows / columns)) (adjust_lr_fn "original") or 0.2 sqrt(max(rows,
// columns)) ("match_rms_adamw"). The iteration is taken in the dtype of the parameter, PyTorch's in bfloat16.
// A parameter of three dimensions is as many matrices, such as the weights of experts. Biases and parameters of other
// dimensions get AdamW's step, with the same lr and weight_decay.
// State: momentum_buffer (v) of matrices, exp_avg and exp_avg_sq of other parameters, and the step count.
class Muon : public Optimizer {
 public:
  Muon(std::vector<ParameterGroup> groups, const OptimOptions& options);

 private:
  void update(const GroupStep& group) override;
  Tensor follow_momentum(const Tensor& gradient, Tensor& momentum) const;
  bool is_of_matrices(std::size_t index) const;
  void orthogonalise(Tensor& direction) const;
  void subtract(std::size_t index, Tensor& value, const Tensor& direction, const GroupStep& group) const;
  void update_matrices_of_parts(const GroupStep& group);

  std::vector<Tensor> momentum_, average_, square_average_;  // undefined for a parameter that has none
};

}  // namespace

Muon::Muon(std::vector<ParameterGroup> groups, const OptimOptions& options)
    : Optimizer(std::move(groups), options),
      momentum_(add_state("momentum_buffer", has_matrices)),
      average_(add_state("exp_avg", has_no_matrices)),
      square_average_(add_state("exp_avg_sq", has_no_matrices)) {}

void Muon::update(const GroupStep& group) {
  const kernels::AdamStep step{.lr = group.lr,
                               .beta1 = options().beta1,
                               .beta2 = options().beta2,
                               .eps = options().eps,
                               .weight_decay = group.weight_decay,
                               .step = step_count(),
                               .decoupled = true};
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor& gradient) {
    if (!is_of_matrices(index)) {
      kernels::of(value).adam_step({&value, 1}, {&gradient, 1}, {&average_[index], 1}, {&square_average_[index], 1},
                                   step);
    } else if (!options().parts) {
      Tensor direction = follow_momentum(gradient, momentum_[index]);
      orthogonalise(direction);
      subtract(index, value, direction, group);
    }
  });
  if (options().parts) update_matrices_of_parts(group);
}

// Other ranks do not know which matrices have a gradient here: those without one take part as zeros.
void Muon::update_matrices_of_parts(const GroupStep& group) {
  std::vector<Tensor> directions(group.end - group.begin);
  for_each(group, [&](std::size_t index, Tensor&, const Tensor& gradient) {
    if (is_of_matrices(index)) directions[index - group.begin] = follow_momentum(gradient, momentum_[index]);
  });
  NamedTensors all;
  for (std::size_t i = group.begin; i < group.end; ++i) {
    if (!is_of_matrices(i)) continue;
    Tensor& direction = directions[i - group.begin];
    if (!direction.defined()) direction = Tensor::zeros_like(momentum_[i]);
    all.emplace_back(name_of(i), direction);
  }
  options().parts->transform(group.number, all, [this](Tensor& whole) { orthogonalise(whole); });
  for_each(group, [&](std::size_t index, Tensor& value, const Tensor&) {
    if (is_of_matrices(index)) subtract(index, value, directions[index - group.begin], group);
  });
}

Tensor Muon::follow_momentum(const Tensor& gradient, Tensor& momentum) const {
  Tensor direction = Tensor::empty(gradient.shape(), gradient.dtype(), gradient.device());
  with_host_type("muon_step", gradient, [&]<class T>() {
    update_momentum<T>(gradient.numel(), gradient.data<T>(), momentum.data<T>(), direction.data<T>(),
                       static_cast<T>(options().momentum), static_cast<T>(1 - options().momentum), options().nesterov);
  });
  return direction;
}

bool Muon::is_of_matrices(std::size_t index) const {
  return has_matrices(name_of(index), whole_shape(index));
}

void Muon::orthogonalise(Tensor& direction) const {
  if (direction.dim() == 2) return make_orthogonal(direction, options().eps, options().ns_steps);
  for (std::int64_t i = 0; i < direction.shape()[0]; ++i) {
    Tensor matrix = direction.select(0, i);
    make_orthogonal(matrix, options().eps, options().ns_steps);
  }
}

void Muon::subtract(std::size_t index, Tensor& value, const Tensor& direction, const GroupStep& group) const {
  with_host_type("muon_step", value, [&]<class T>() {
    shrink_and_subtract<T>(value.numel(), value.data<T>(), direction.data<T>(),
                           static_cast<T>(1 - group.lr * group.weight_decay),
                           static_cast<T>(adjusted_lr(group.lr, options().adjust_lr_fn, whole_shape(index))));
  });
}

std::unique_ptr<Optimizer> make_muon(const OptimOptions& options, std::vector<ParameterGroup> groups) {
  return std::make_unique<Muon>(std::move(groups), options);
}

}  // namespace ddprun::optim
