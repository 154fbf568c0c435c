#include "ddprun/worker/autograd/ops/elementwise.h"

#include <algorithm>

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {
namespace {

void check_equal(const char* op, const Variable& a, const Variable& b) {
  if (a.shape() == b.shape() && a.dtype() == b.dtype()) return;
  throw make_error(Errc::mismatch, "{}: the operands differ: {} of shape {} and {} of shape {}", op, name_of(a.dtype()),
                   to_string(a.shape()), name_of(b.dtype()), to_string(b.shape()));
}

bool is_tail(const Shape& tail, const Shape& whole) {
  return tail.size() <= whole.size() && std::equal(tail.rbegin(), tail.rend(), whole.rbegin());
}

Variable add_tail(const Variable& a, const Variable& bias) {
  if (!is_tail(bias.shape(), a.shape()) || a.dtype() != bias.dtype()) check_equal("add", a, bias);
  const std::int64_t count = bias.value().numel();
  const std::int64_t outer = count > 0 ? a.value().numel() / count : 0;
  Tensor value = a.value().clone();
  kernels::add_bias(value, bias.value(), outer, 1);
  return autograd::record(std::move(value), {a, bias}, [outer, like = bias.value()](autograd::Backward& pass) {
    if (pass.wants(0)) pass.add(0, pass.grad());
    if (!pass.wants(1)) return;
    Tensor gradient = Tensor::empty(like.shape(), like.dtype());
    kernels::sum_to_bias(pass.grad(), outer, 1, gradient, false);
    pass.add(1, std::move(gradient));
  });
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  if (a.shape() != b.shape()) return add_tail(a, b);
  check_equal("add", a, b);
  return autograd::record(kernels::add(a.value(), b.value()), {a, b}, [](autograd::Backward& pass) {
    pass.add(0, pass.grad());
    pass.add(1, pass.grad());
  });
}

Variable mul(const Variable& a, const Variable& b) {
  check_equal("mul", a, b);
  return autograd::record(kernels::multiply(a.value(), b.value()), {a, b},
                          [x = a.value(), y = b.value()](autograd::Backward& pass) {
                            if (pass.wants(0)) pass.add(0, kernels::multiply(pass.grad(), y));
                            if (pass.wants(1)) pass.add(1, kernels::multiply(pass.grad(), x));
                          });
}

Variable mul(const Variable& a, double factor) {
  return autograd::record(kernels::scale(a.value(), factor), {a},
                          [factor](autograd::Backward& pass) { pass.add(0, kernels::scale(pass.grad(), factor)); });
}

Variable relu(const Variable& input) {
  Tensor value = kernels::relu(input.value());
  return autograd::record(
      value, {input}, [value](autograd::Backward& pass) { pass.add(0, kernels::relu_backward(value, pass.grad())); });
}

Variable dropout(const Variable& input, double probability, Generator& generator) {
  if (!(probability >= 0 && probability <= 1)) {
    throw make_error(Errc::usage, "dropout: the probability {} is not between 0 and 1", probability);
  }
  const Tensor mask = kernels::dropout_mask(input.shape(), input.dtype(), probability, generator);
  return autograd::record(kernels::multiply(input.value(), mask), {input},
                          [mask](autograd::Backward& pass) { pass.add(0, kernels::multiply(pass.grad(), mask)); });
}

}  // namespace ddprun
