#include "worker/autograd/ops/mapped.h"

#include <array>

#include "common/error.h"

namespace ddprun::autograd {
namespace {

using functor::Saves;
using kernels::Arguments;
using kernels::Binary;
using kernels::Unary;

#define DDPRUN_ROW(name, functor_) functor::functor_::saves,
constexpr std::array saves_of{DDPRUN_UNARY_FUNCTORS(DDPRUN_ROW)};
#undef DDPRUN_ROW

// Adds the gradient of one operand, summed over the dimensions in which it was broadcast.
void add_operand_gradient(Backward& pass, std::size_t operand, Binary function, const Arguments& arguments) {
  if (!pass.wants(operand)) return;
  const Tensor& grad = pass.grad();
  const Tensor &a = pass.saved(0), &b = pass.saved(1);
  Tensor gradient = Tensor::empty_like(grad);
  kernels::of(grad).binary_gradient(function, arguments, static_cast<int>(operand), a.expand(grad.shape()),
                                    b.expand(grad.shape()), grad, gradient);
  pass.add(operand, kernels::sum_to(gradient, operand == 0 ? a.shape() : b.shape()));
}

}  // namespace

void check_same_dtype(const char* name, const Tensor& a, const Tensor& b) {
  if (a.dtype() == b.dtype()) return;
  throw make_error(Errc::mismatch, "{}: the operands differ: {} of shape {} and {} of shape {}", name,
                   name_of(a.dtype()), to_string(a.shape()), name_of(b.dtype()), to_string(b.shape()));
}

Variable unary(const char* name, Unary function, const Variable& input, const Arguments& arguments) {
  const Function operation(name, {input});
  const Tensor x = input.value().dense();
  Tensor y = kernels::unary(function, x, arguments);
  const Saves saves = saves_of[static_cast<std::size_t>(function)];
  std::vector<Tensor> saved;
  if (saves != Saves::nothing) saved.push_back(saves == Saves::input ? x : y);
  return operation.record(std::move(y), std::move(saved), [function, arguments, saves](Backward& pass) {
    const Tensor from = saves == Saves::nothing ? Tensor() : pass.saved(0);
    const Tensor grad = from.defined() ? pass.dense_grad().in_layout_of(from) : pass.dense_grad();
    Tensor out = Tensor::empty_like(grad);
    kernels::of(out).unary_gradient(function, arguments, from, grad, out);
    pass.add(0, std::move(out));
  });
}

Variable binary(const char* name, Binary function, const Variable& given_a, const Variable& given_b,
                const Arguments& arguments) {
  const auto [a, b] = autocast(CastClass::widest, given_a, given_b);
  const Function operation(name, {a, b});
  check_same_dtype(name, a.value(), b.value());
  const Shape shape = broadcast_shape(name, a.shape(), b.shape());
  Tensor out = Tensor::empty(shape, a.dtype(), a.device());
  kernels::of(out).binary(function, arguments, a.value().expand(shape), b.value().expand(shape), out);
  return operation.record(std::move(out), {a.value(), b.value()}, [function, arguments](Backward& pass) {
    add_operand_gradient(pass, 0, function, arguments);
    add_operand_gradient(pass, 1, function, arguments);
  });
}

}  // namespace ddprun::autograd
