#include "worker/autograd/ops/matmul.h"

#include <numeric>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/product_gradients.h"
#include "worker/autograd/ops/shape.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

using autograd::add_parameter_gradients;
using autograd::add_product;
using autograd::WeightLayout;

[[noreturn]] void throw_no_product(const char* name, const Variable& a, const Variable& b) {
  throw make_error(Errc::mismatch, "{}: cannot multiply {} of shape {} with {} of shape {}", name, name_of(a.dtype()),
                   to_string(a.shape()), name_of(b.dtype()), to_string(b.shape()));
}

void check_product(const char* name, const Variable& a, const Variable& b) {
  const Shape &x = a.shape(), &y = b.shape();
  const std::size_t rank = x.size();
  if (rank < 2 || y.size() != rank || a.dtype() != b.dtype() || x[rank - 1] != y[rank - 2])
    throw_no_product(name, a, b);
  for (std::size_t i = 0; i + 2 < rank; ++i)
    if (x[i] != y[i]) throw_no_product(name, a, b);
}

void check_linear(const Variable& input, const Variable& weight, const Variable& bias) {
  if (input.shape().empty() || weight.shape().size() != 2 || input.shape().back() != weight.shape()[1] ||
      input.dtype() != weight.dtype())
    throw_no_product("linear", input, weight);
  if (!bias.defined() || (bias.shape() == Shape{weight.shape()[0]} && bias.dtype() == weight.dtype())) return;
  throw make_error(Errc::mismatch, "linear: a bias of shape {} does not fit a weight of shape {}",
                   to_string(bias.shape()), to_string(weight.shape()));
}

// Returns (..., rows, columns) as (count, rows, columns).
Tensor as_batch(const Tensor& x) {
  const Tensor dense = x.contiguous();
  const std::int64_t size = dense.size(-2) * dense.size(-1);
  return dense.reshape({size > 0 ? dense.numel() / size : 0, dense.size(-2), dense.size(-1)});
}

void add_batched_product(autograd::Backward& pass, std::size_t input, const Shape& shape, const Tensor& a,
                         const Tensor& b, kernels::MatmulOptions options) {
  if (!pass.wants(input)) return;
  const std::int64_t rows = a.size(options.transpose_a ? 2 : 1), columns = b.size(options.transpose_b ? 1 : 2);
  Tensor gradient = Tensor::empty({a.size(0), rows, columns}, a.dtype(), a.device());
  kernels::of(a).batched_matmul(a, b, gradient, options);
  pass.add(input, gradient.reshape(shape));
}

Variable batched_matmul(const autograd::Function& operation, const Variable& a, const Variable& b) {
  const Tensor x = as_batch(a.value()), y = as_batch(b.value());
  Shape shape = a.shape();
  shape.back() = y.size(2);
  Tensor out = Tensor::empty({x.size(0), x.size(1), y.size(2)}, x.dtype(), x.device());
  kernels::of(x).batched_matmul(x, y, out, {});
  return operation.record(out.reshape(shape), {x, y},
                          [a_shape = a.shape(), b_shape = b.shape()](autograd::Backward& pass) {
                            const Tensor grad = as_batch(pass.grad());
                            add_batched_product(pass, 0, a_shape, grad, pass.saved(1), {.transpose_b = true});
                            add_batched_product(pass, 1, b_shape, pass.saved(0), grad, {.transpose_a = true});
                          });
}

// The linear layer of an input (batch, in).
Variable linear_2d(const Variable& input, const Variable& weight, const Variable& bias) {
  const autograd::Function operation("linear", {input, weight, bias});
  check_linear(input, weight, bias);
  const Tensor x = input.value().contiguous(), w = weight.value().contiguous();
  const std::int64_t batch = x.size(0);
  Tensor value = Tensor::empty({batch, w.size(0)}, x.dtype(), x.device());
  if (operation.needs_value()) {
    const kernels::MatmulOptions options{.transpose_b = true};
    if (bias.defined())
      kernels::of(x).addmm(bias.value().contiguous(), x, w, value, options);
    else
      kernels::of(x).matmul(x, w, value, options);
  }
  return operation.record(std::move(value), {x, w}, [](autograd::Backward& pass) {
    const Tensor &saved_x = pass.saved(0), &saved_w = pass.saved(1);
    add_parameter_gradients(pass, 1, 2, saved_x, pass.grad(), WeightLayout::out_in, pass.grad().dtype());
    add_product(pass, 0, saved_x.shape(), pass.grad(), saved_w, {});
  });
}

using GroupCounts = std::vector<std::int64_t>;

// Calls act(group, first row, rows) for each group.
template <class Act>
void for_each_group(const GroupCounts& counts, Act act) {
  std::int64_t first = 0;
  for (std::size_t group = 0; group < counts.size(); ++group) {
    act(static_cast<std::int64_t>(group), first, counts[group]);
    first += counts[group];
  }
}

void check_groups(const Variable& a, const GroupCounts& counts, const Variable& b, const Variable& bias) {
  const Shape &x = a.shape(), &y = b.shape();
  if (x.size() != 2 || y.size() != 3 || x[1] != y[1] || a.dtype() != b.dtype()) throw_no_product("grouped_mm", a, b);
  const std::int64_t rows = std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  if (std::ssize(counts) != y[0] || rows != x[0])
    throw make_error(Errc::mismatch, "grouped_mm: {} counts of {} rows for {} groups and {} rows", counts.size(), rows,
                     y[0], x[0]);
  if (bias.defined() && (bias.shape() != Shape{y[0], y[2]} || bias.dtype() != b.dtype()))
    throw make_error(Errc::mismatch, "grouped_mm: a bias of shape {} does not fit {} groups of {} columns",
                     to_string(bias.shape()), y[0], y[2]);
}

void add_gradient_of_rows(autograd::Backward& pass, const GroupCounts& counts) {
  const Tensor &grad = pass.grad(), &b = pass.saved(1);
  autograd::add_computed(pass, 0, pass.saved(0).shape(), [&](Tensor& out, bool accumulate) {
    for_each_group(counts, [&](std::int64_t group, std::int64_t first, std::int64_t rows) {
      Tensor part = out.slice(0, first, rows);
      kernels::of(grad).matmul(grad.slice(0, first, rows), b.select(0, group), part,
                               {.transpose_b = true, .accumulate = accumulate, .varying = true});
    });
  });
}

// A group without rows has the gradient zero.
void add_gradient_of_groups(autograd::Backward& pass, const GroupCounts& counts) {
  const Tensor &grad = pass.grad(), &a = pass.saved(0);
  autograd::add_computed(pass, 1, pass.saved(1).shape(), [&](Tensor& out, bool accumulate) {
    for_each_group(counts, [&](std::int64_t group, std::int64_t first, std::int64_t rows) {
      Tensor part = out.select(0, group);
      if (rows == 0 && !accumulate) part.fill(0);
      if (rows > 0)
        kernels::of(grad).matmul(a.slice(0, first, rows), grad.slice(0, first, rows), part,
                                 {.transpose_a = true, .accumulate = accumulate, .varying = true});
    });
  });
}

void add_gradient_of_biases(autograd::Backward& pass, const GroupCounts& counts) {
  const Tensor& grad = pass.grad();
  autograd::add_computed(pass, 2, {static_cast<std::int64_t>(counts.size()), grad.size(1)},
                         [&](Tensor& out, bool accumulate) {
                           for_each_group(counts, [&](std::int64_t group, std::int64_t first, std::int64_t rows) {
                             Tensor part = out.select(0, group);
                             kernels::of(grad).sum_to_bias(grad.slice(0, first, rows), rows, 1, part, accumulate);
                           });
                         });
}

}  // namespace

Variable matmul(const Variable& given_a, const Variable& given_b) {
  const auto [a, b] = autograd::autocast(autograd::CastClass::lower, given_a, given_b);
  const autograd::Function operation("matmul", {a, b});
  check_product("matmul", a, b);
  if (a.shape().size() > 2) return batched_matmul(operation, a, b);
  const Tensor x = a.value().contiguous(), y = b.value().contiguous();
  Tensor value = Tensor::empty({x.size(0), y.size(1)}, x.dtype(), x.device());
  if (operation.needs_value()) kernels::of(x).matmul(x, y, value, {});
  return operation.record(std::move(value), {x, y}, [](autograd::Backward& pass) {
    const Tensor &saved_x = pass.saved(0), &saved_y = pass.saved(1);
    add_product(pass, 0, saved_x.shape(), pass.grad(), saved_y, {.transpose_b = true});
    add_product(pass, 1, saved_y.shape(), saved_x, pass.grad(), {.transpose_a = true});
  });
}

Variable addmm(const Variable& given_bias, const Variable& given_a, const Variable& given_b) {
  const auto [bias, a, b] = autograd::autocast(autograd::CastClass::lower, given_bias, given_a, given_b);
  const autograd::Function operation("addmm", {a, b, bias});
  check_product("addmm", a, b);
  if (a.shape().size() != 2) throw_no_product("addmm", a, b);
  if (bias.shape() != Shape{b.shape()[1]} || bias.dtype() != b.dtype()) {
    throw make_error(Errc::mismatch, "addmm: a bias of shape {} does not fit a product of {} columns",
                     to_string(bias.shape()), b.shape()[1]);
  }
  const Tensor x = a.value().contiguous(), y = b.value().contiguous();
  Tensor value = Tensor::empty({x.size(0), y.size(1)}, x.dtype(), x.device());
  if (operation.needs_value()) kernels::of(x).addmm(bias.value().contiguous(), x, y, value, {});
  return operation.record(std::move(value), {x, y}, [](autograd::Backward& pass) {
    const Tensor &saved_x = pass.saved(0), &saved_y = pass.saved(1);
    add_parameter_gradients(pass, 1, 2, saved_x, pass.grad(), WeightLayout::in_out, pass.grad().dtype());
    add_product(pass, 0, saved_x.shape(), pass.grad(), saved_y, {.transpose_b = true});
  });
}

Variable linear(const Variable& given_input, const Variable& given_weight, const Variable& given_bias) {
  const auto [input, weight, bias] =
      autograd::autocast(autograd::CastClass::lower, given_input, given_weight, given_bias);
  if (input.shape().size() == 2) return linear_2d(input, weight, bias);
  check_linear(input, weight, bias);
  Shape shape = input.shape();
  const std::int64_t width = shape.back();
  shape.back() = weight.shape()[0];
  const std::int64_t rows = width > 0 ? input.value().numel() / width : 0;
  return reshape(linear_2d(reshape(input, {rows, width}), weight, bias), shape);
}

Variable grouped_mm(const Variable& given_a, const GroupCounts& counts, const Variable& given_b,
                    const Variable& given_bias) {
  const auto [a, b, bias] = autograd::autocast(autograd::CastClass::lower, given_a, given_b, given_bias);
  const autograd::Function operation("grouped_mm", {a, b, bias});
  check_groups(a, counts, b, bias);
  const Tensor x = a.value().contiguous(), y = b.value().contiguous();
  Tensor value = Tensor::empty({x.size(0), y.size(2)}, x.dtype(), x.device());
  if (operation.needs_value())
    for_each_group(counts, [&, biases = bias.defined() ? bias.value().contiguous() : Tensor()](
                               std::int64_t group, std::int64_t first, std::int64_t rows) {
      Tensor part = value.slice(0, first, rows);
      kernels::of(x).matmul(x.slice(0, first, rows), y.select(0, group), part, {.varying = true});
      if (biases.defined()) kernels::of(x).add_bias(part, biases.select(0, group), rows, 1);
    });
  return operation.record(std::move(value), {x, y}, [counts](autograd::Backward& pass) {
    add_gradient_of_biases(pass, counts);
    add_gradient_of_groups(pass, counts);
    add_gradient_of_rows(pass, counts);
  });
}

}  // namespace ddprun
