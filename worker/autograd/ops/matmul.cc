#include "ddprun/worker/autograd/ops/matmul.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

// Gives input the gradient op(a) op(b), added in place where its memory is there already.
void add_product(autograd::Backward& pass, std::size_t input, const Shape& shape, const Tensor& a, const Tensor& b,
                 kernels::MatmulOptions options) {
  if (!pass.wants(input)) return;
  if (Tensor sum = pass.accumulator(input); sum.defined()) {
    options.accumulate = true;
    kernels::matmul(a, b, sum, options);
    return;
  }
  Tensor gradient = Tensor::empty(shape, a.dtype());
  kernels::matmul(a, b, gradient, options);
  pass.add(input, std::move(gradient));
}

void check_product(const char* op, const Variable& a, const Variable& b, std::size_t b_inner) {
  if (a.shape().size() == 2 && b.shape().size() == 2 && a.shape()[1] == b.shape()[b_inner] && a.dtype() == b.dtype())
    return;
  throw make_error(Errc::mismatch, "{}: cannot multiply {} of shape {} with {} of shape {}", op, name_of(a.dtype()),
                   to_string(a.shape()), name_of(b.dtype()), to_string(b.shape()));
}

void check_bias(const Variable& weight, const Variable& bias) {
  if (!bias.defined() || (bias.shape() == Shape{weight.shape()[0]} && bias.dtype() == weight.dtype())) return;
  throw make_error(Errc::mismatch, "linear: a bias of shape {} does not fit a weight of shape {}",
                   to_string(bias.shape()), to_string(weight.shape()));
}

void add_bias_gradient(autograd::Backward& pass, std::size_t input) {
  if (!pass.wants(input)) return;
  const Tensor& grad = pass.grad();
  if (Tensor sum = pass.accumulator(input); sum.defined()) {
    kernels::sum_to_bias(grad, grad.size(0), 1, sum, true);
    return;
  }
  Tensor gradient = Tensor::empty({grad.size(1)}, grad.dtype());
  kernels::sum_to_bias(grad, grad.size(0), 1, gradient, false);
  pass.add(input, std::move(gradient));
}

}  // namespace

Variable matmul(const Variable& a, const Variable& b) {
  check_product("matmul", a, b, 0);
  Tensor value = Tensor::empty({a.shape()[0], b.shape()[1]}, a.dtype());
  kernels::matmul(a.value(), b.value(), value);
  return autograd::record(std::move(value), {a, b}, [x = a.value(), y = b.value()](autograd::Backward& pass) {
    add_product(pass, 0, x.shape(), pass.grad(), y, {.transpose_b = true});
    add_product(pass, 1, y.shape(), x, pass.grad(), {.transpose_a = true});
  });
}

Variable linear(const Variable& input, const Variable& weight, const Variable& bias) {
  check_product("linear", input, weight, 1);
  check_bias(weight, bias);
  const std::int64_t batch = input.shape()[0];
  Tensor value = Tensor::empty({batch, weight.shape()[0]}, input.dtype());
  kernels::matmul(input.value(), weight.value(), value, {.transpose_b = true});
  if (bias.defined()) kernels::add_bias(value, bias.value(), batch, 1);
  return autograd::record(std::move(value), {input, weight, bias},
                          [x = input.value(), w = weight.value()](autograd::Backward& pass) {
                            add_bias_gradient(pass, 2);
                            add_product(pass, 1, w.shape(), pass.grad(), x, {.transpose_a = true});
                            add_product(pass, 0, x.shape(), pass.grad(), w, {});
                          });
}

}  // namespace ddprun
