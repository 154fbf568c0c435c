#include "worker/autograd/ops/elementwise.h"

#include "common/error.h"
#include "worker/autograd/ops/mapped.h"

namespace ddprun {
namespace {

using autograd::autocast;
using autograd::binary;
using autograd::CastClass;
using autograd::unary;
using kernels::Binary;
using kernels::Comparison;
using kernels::Unary;

Tensor compare(const char* name, Comparison comparison, const Tensor& given_a, const Tensor& given_b) {
  const auto operands = autocast(CastClass::widest, Variable(given_a), Variable(given_b));
  const Tensor &a = operands[0].value(), &b = operands[1].value();
  const autograd::Function operation(name, {}, {a, b});
  autograd::check_same_dtype(name, a, b);
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  Tensor out = Tensor::empty(shape, DType::uint8, a.device());
  kernels::of(out).compare(comparison, a.expand(shape), b.expand(shape), out);
  return out;
}

Tensor add_or_subtract(const char* name, Binary function, const Tensor& a, const Tensor& b) {
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  const bool blocked = a.shape() == b.shape() && a.channel_block() != 0;
  Tensor out = blocked ? Tensor::empty_like(a) : Tensor::empty(shape, a.dtype(), a.device());
  kernels::of(out).binary(function, {}, blocked ? a : a.expand(shape), blocked ? b.in_layout_of(a) : b.expand(shape),
                          out);
  return out;
}

Tensor gradient_of(autograd::Backward& pass, const Shape& operand) {
  return pass.dense_grad().shape() == operand ? pass.dense_grad() : kernels::sum_to(pass.grad(), operand);
}

// The gradient of a sum's or a difference's operand needs nothing but the shapes.
Variable add_or_subtract(const char* name, Binary function, const Variable& given_a, const Variable& given_b,
                         double sign_of_b) {
  const auto [a, b] = autocast(CastClass::widest, given_a, given_b);
  const autograd::Function operation(name, {a, b});
  autograd::check_same_dtype(name, a.value(), b.value());
  return operation.record(add_or_subtract(name, function, a.value(), b.value()), {},
                          [shape_a = a.shape(), shape_b = b.shape(), sign_of_b](autograd::Backward& pass) {
                            if (pass.wants(0)) pass.add(0, gradient_of(pass, shape_a));
                            if (!pass.wants(1)) return;
                            const Tensor gradient = gradient_of(pass, shape_b);
                            pass.add(1, sign_of_b == 1 ? gradient : kernels::scale(gradient, sign_of_b));
                          });
}

}  // namespace

Variable add(const Variable& a, const Variable& b) {
  return add_or_subtract("add", Binary::add, a, b, 1);
}
Variable add(const Variable& a, double number) {
  return unary("add", Unary::shift, a, {.a = number});
}
Variable sub(const Variable& a, const Variable& b) {
  return add_or_subtract("sub", Binary::subtract, a, b, -1);
}
Variable mul(const Variable& a, const Variable& b) {
  return binary("mul", Binary::multiply, a, b);
}
Variable mul(const Variable& a, double factor) {
  return unary("mul", Unary::scale, a, {.a = factor});
}
Variable div(const Variable& a, const Variable& b) {
  return binary("div", Binary::divide, a, b);
}
Variable maximum(const Variable& a, const Variable& b) {
  return binary("maximum", Binary::maximum, a, b);
}
Variable minimum(const Variable& a, const Variable& b) {
  return binary("minimum", Binary::minimum, a, b);
}

Variable neg(const Variable& input) {
  return unary("neg", Unary::scale, input, {.a = -1});
}
Variable abs(const Variable& input) {
  return unary("abs", Unary::abs, input);
}
Variable exp(const Variable& input) {
  return unary("exp", Unary::exp, autocast(CastClass::float32, input));
}
Variable log(const Variable& input) {
  return unary("log", Unary::log, autocast(CastClass::float32, input));
}
Variable sqrt(const Variable& input) {
  return unary("sqrt", Unary::sqrt, input);
}
Variable pow(const Variable& input, double exponent) {
  return unary("pow", Unary::pow, autocast(CastClass::float32, input), {.a = exponent});
}
Variable clamp(const Variable& input, double low, double high) {
  return unary("clamp", Unary::clamp, input, {.a = low, .b = high});
}

Tensor equal(const Tensor& a, const Tensor& b) {
  return compare("equal", Comparison::equal, a, b);
}
Tensor not_equal(const Tensor& a, const Tensor& b) {
  return compare("not_equal", Comparison::not_equal, a, b);
}
Tensor less(const Tensor& a, const Tensor& b) {
  return compare("less", Comparison::less, a, b);
}
Tensor less_equal(const Tensor& a, const Tensor& b) {
  return compare("less_equal", Comparison::less_equal, a, b);
}
Tensor greater(const Tensor& a, const Tensor& b) {
  return compare("greater", Comparison::greater, a, b);
}
Tensor greater_equal(const Tensor& a, const Tensor& b) {
  return compare("greater_equal", Comparison::greater_equal, a, b);
}

Variable where(const Tensor& condition, const Variable& given_a, const Variable& given_b) {
  const auto [a, b] = autocast(CastClass::widest, given_a, given_b);
  const autograd::Function operation("where", {a, b}, {condition});
  if (condition.dtype() != DType::uint8 || a.dtype() != b.dtype()) {
    throw make_error(Errc::mismatch, "where: a {} condition for {} and {} operands: it is uint8, they are of one dtype",
                     name_of(condition.dtype()), name_of(a.dtype()), name_of(b.dtype()));
  }
  const Shape shape = broadcast_shape("where", broadcast_shape("where", a.shape(), b.shape()), condition.shape());
  Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  kernels::of(out).where(condition.expand(shape), a.value().expand(shape), b.value().expand(shape), out);
  return operation.record(
      std::move(out), {condition}, [shape_a = a.shape(), shape_b = b.shape()](autograd::Backward& pass) {
        const Tensor& grad = pass.grad();
        const Tensor chosen = pass.saved(0).expand(grad.shape());
        const Tensor zero = Tensor::zeros({}, grad.dtype(), grad.device()).expand(grad.shape());
        for (std::size_t operand : {0, 1}) {
          if (!pass.wants(operand)) continue;
          Tensor gradient = Tensor::empty_like(grad);
          kernels::of(grad).where(chosen, operand == 0 ? grad : zero, operand == 0 ? zero : grad, gradient);
          pass.add(operand, kernels::sum_to(gradient, operand == 0 ? shape_a : shape_b));
        }
      });
}

}  // namespace ddprun
