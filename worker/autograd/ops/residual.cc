#include "worker/autograd/ops/residual.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/node.h"
#include "worker/autograd/ops/product_gradients.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

using autograd::add_parameter_gradients;
using autograd::Backward;
using autograd::CastClass;
using autograd::WeightLayout;

// Returns (..., width) as (rows, width).
Tensor as_rows(const Tensor& x) {
  const std::int64_t width = x.size(-1);
  return x.contiguous().reshape({width > 0 ? x.numel() / width : 0, width});
}

[[noreturn]] void throw_mismatch(const char* name, const char* what, const Variable& found, const Variable& other) {
  throw make_error(Errc::mismatch, "{}: {}, {} of shape {}, does not fit {} of shape {}", name, what,
                   name_of(found.dtype()), to_string(found.shape()), name_of(other.dtype()), to_string(other.shape()));
}

// Checks (..., in) times (in, out), and a bias (out) of the given type.
void check_layer(const char* name, const Variable& input, const Variable& weight, const Variable& bias, DType out) {
  if (input.shape().empty() || weight.shape().size() != 2 || input.shape().back() != weight.shape()[0] ||
      input.dtype() != weight.dtype())
    throw_mismatch(name, "the input", input, weight);
  if (bias.defined() && (bias.shape() != Shape{weight.shape()[1]} || bias.dtype() != out))
    throw_mismatch(name, "the bias", bias, weight);
}

// The result is (..., in) x (in, out), in the type of the factors or in float32.
void check_residual(const char* name, const Variable& residual, const Variable& input, const Variable& weight) {
  Shape expected = input.shape();
  expected.back() = weight.shape()[1];
  const bool fits =
      residual.shape() == expected &&
      (residual.dtype() == input.dtype() || (residual.dtype() == DType::float32 && size_of(input.dtype()) == 2));
  if (!fits) throw_mismatch(name, "the residual", residual, weight);
}

Tensor value_of(const Variable& variable) {
  return variable.defined() ? variable.value().contiguous() : Tensor();
}

// Returns residual + a b + bias in the residual's shape and type.
Tensor add_to_residual(const Variable& residual, const Tensor& a, const Tensor& b, const Variable& bias,
                       bool needs_value) {
  Tensor out = Tensor::empty(residual.shape(), residual.dtype(), a.device());
  if (!needs_value) return out;
  Tensor rows = as_rows(out);
  kernels::of(a).fused_matmul(a, b, rows, {.bias = value_of(bias), .addend = as_rows(residual.value())}, {});
  return out;
}

// Adds the gradient of the first layer's input: grad (rows, out) times the weight (in, out) transposed.
void add_input_gradient(Backward& pass, std::size_t input, const Shape& shape, const Tensor& grad,
                        const Tensor& weight) {
  if (!pass.wants(input)) return;
  Tensor gradient = Tensor::empty({grad.size(0), weight.size(0)}, grad.dtype(), grad.device());
  kernels::of(grad).matmul(grad, weight, gradient, {.transpose_b = true});
  pass.add(input, gradient.reshape(shape));
}

// shape: that of the input.
void add_mlp_gradients(Backward& pass, const Shape& shape) {
  const Tensor &x = pass.saved(0), &first = pass.saved(1), &before = pass.saved(2), &hidden = pass.saved(3),
               &second = pass.saved(4);
  const Tensor grad = as_rows(pass.grad_in(x.dtype()));
  add_parameter_gradients(pass, 3, 4, hidden, grad, WeightLayout::in_out, pass.grad().dtype());
  Tensor before_grad = Tensor::empty_like(before);
  kernels::of(x).fused_matmul(grad, second, before_grad, {.gelu_gradient = before}, {.transpose_b = true});
  add_parameter_gradients(pass, 1, 2, x, before_grad, WeightLayout::in_out, x.dtype());
  add_input_gradient(pass, 0, shape, before_grad, first);
  if (pass.wants(5)) pass.add(5, pass.grad());
}

}  // namespace

Variable residual_addmm(const Variable& residual, const Variable& given_bias, const Variable& given_a,
                        const Variable& given_b) {
  const char* const name = "residual_addmm";
  const auto [a, b] = autograd::autocast(CastClass::lower, given_a, given_b);
  const Variable bias = cast(given_bias, residual.dtype());
  const autograd::Function operation(name, {a, b, bias, residual});
  check_layer(name, a, b, bias, residual.dtype());
  check_residual(name, residual, a, b);
  const Tensor x = as_rows(a.value()), y = b.value().contiguous();
  const bool needs_value = operation.needs_value();
  Variable result =
      operation.record(add_to_residual(residual, x, y, bias, needs_value), {x, y}, [shape = a.shape()](Backward& pass) {
        const Tensor &saved_x = pass.saved(0), &saved_y = pass.saved(1);
        const Tensor grad = as_rows(pass.grad_in(saved_x.dtype()));
        add_parameter_gradients(pass, 1, 2, saved_x, grad, WeightLayout::in_out, pass.grad().dtype());
        add_input_gradient(pass, 0, shape, grad, saved_y);
        if (pass.wants(3)) pass.add(3, pass.grad());
      });
  if (residual.dtype() != a.dtype()) autograd::reads_gradient_in(result, a.dtype());
  return result;
}

Variable residual_mlp(const Variable& residual, const Variable& given_input, const MlpWeights& weights) {
  const char* const name = "residual_mlp";
  const auto [input, first, first_bias, second] =
      autograd::autocast(CastClass::lower, given_input, weights.first, weights.first_bias, weights.second);
  const Variable second_bias = cast(weights.second_bias, residual.dtype());
  const autograd::Function operation(name, {input, first, first_bias, second, second_bias, residual});
  check_layer(name, input, first, first_bias, input.dtype());
  if (second.shape().size() != 2 || second.shape()[0] != first.shape()[1] || second.dtype() != first.dtype())
    throw_mismatch(name, "the second weight", second, first);
  check_residual(name, residual, input, second);
  const Tensor x = as_rows(input.value()), w1 = first.value().contiguous(), w2 = second.value().contiguous();
  Tensor before = Tensor::empty({x.size(0), w1.size(1)}, x.dtype(), x.device()), hidden = Tensor::empty_like(before);
  const bool needs_value = operation.needs_value();
  kernels::of(x).fused_matmul(x, w1, hidden, {.bias = value_of(first_bias), .gelu_input = before}, {});
  Variable result =
      operation.record(add_to_residual(residual, hidden, w2, second_bias, needs_value), {x, w1, before, hidden, w2},
                       [shape = input.shape()](Backward& pass) { add_mlp_gradients(pass, shape); });
  if (const autograd::Edge edge = autograd::Access::edge(result); edge.node) edge.node->divisible = false;
  if (residual.dtype() != input.dtype()) autograd::reads_gradient_in(result, input.dtype());
  return result;
}

}  // namespace ddprun
