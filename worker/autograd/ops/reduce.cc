#include "worker/autograd/ops/reduce.h"

#include <algorithm>
#include <array>
#include <optional>
#include <utility>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/shape.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

using kernels::Axis;

// The dimensions of a shape that are reduced.
class Reduction {
 public:
  Reduction(const char* name, const Shape& shape, const Dims& dims) : shape_(shape) {
    for (const std::int64_t dim : dims) {
      const std::size_t at = checked_dim(name, dim, shape.size());
      if (std::exchange(reduced_[at], true))
        throw make_error(Errc::usage, "{}: dimension {} is given twice", name, dim);
    }
  }

  // Returns the kept dimensions in their order, then the reduced ones.
  std::vector<std::int64_t> kept_first() const {
    std::vector<std::int64_t> order;
    for (const bool reduced : {false, true})
      for (std::size_t i = 0; i < shape_.size(); ++i)
        if (reduced_[i] == reduced) order.push_back(static_cast<std::int64_t>(i));
    return order;
  }

  Shape result(bool keepdim) const {
    Shape shape;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      if (!reduced_[i]) shape.push_back(shape_[i]);
      if (reduced_[i] && keepdim) shape.push_back(1);
    }
    return shape;
  }

  // Returns none if a kept dimension is between reduced ones.
  std::optional<Axis> axis() const {
    Axis axis{1, 1, 1};
    bool before = true;
    for (std::size_t i = 0; i < shape_.size(); ++i) {
      if (reduced_[i] && axis.inner != 1) return std::nullopt;
      if (reduced_[i]) before = false;
      (reduced_[i] ? axis.n : before ? axis.outer : axis.inner) *= shape_[i];
    }
    return axis;
  }

  std::int64_t count() const {
    std::int64_t product = 1;
    for (std::size_t i = 0; i < shape_.size(); ++i)
      if (reduced_[i]) product *= shape_[i];
    return product;
  }

 private:
  Shape shape_;
  std::array<bool, Shape::max_rank> reduced_{};
};

void sum_along(const Tensor& x, const Reduction& reduction, Tensor& out) {
  if (const auto axis = reduction.axis()) return kernels::of(x).sum(x.contiguous(), *axis, out);
  kernels::of(x).sum(x.permute(reduction.kept_first()).contiguous(), {out.numel(), reduction.count(), 1}, out);
}

void check_not_empty(const char* name, std::int64_t count, const Shape& shape) {
  if (count > 0) return;
  throw make_error(Errc::usage, "{}: the input of shape {} has no elements to reduce", name, to_string(shape));
}

// Computes softmax along a dimension as rows: that dimension is moved to the end.
Variable softmax_along(const char* name, const Variable& given, std::int64_t dim, bool log) {
  const Variable input = autograd::autocast(autograd::CastClass::float32, given);
  const auto rank = static_cast<std::int64_t>(input.shape().size());
  const auto at = static_cast<std::int64_t>(checked_dim(name, dim, input.shape().size()));
  if (at != rank - 1) return transpose(softmax_along(name, transpose(input, at, -1), -1, log), at, -1);
  const autograd::Function operation(name, {input});
  const Tensor x = input.value().contiguous();
  check_not_empty(name, x.numel(), x.shape());
  const Axis rows{x.numel() / x.size(-1), x.size(-1), 1};
  Tensor y = Tensor::empty_like(x);
  kernels::of(x).softmax(x, rows, log, y);
  const Tensor kept = y;
  return operation.record(std::move(y), {kept}, [rows, log](autograd::Backward& pass) {
    Tensor gradient = Tensor::empty_like(pass.grad());
    kernels::of(gradient).softmax_gradient(pass.saved(0), pass.grad(), rows, log, gradient);
    pass.add(0, std::move(gradient));
  });
}

}  // namespace

Variable sum(const Variable& given) {
  const Variable input = autograd::autocast(autograd::CastClass::float32, given);
  const autograd::Function operation("sum", {input});
  return operation.record(
      kernels::sum(input.value().contiguous()), {},
      [shape = input.shape()](autograd::Backward& pass) { pass.add(0, pass.grad().expand(shape).contiguous()); });
}

Variable mean(const Variable& input) {
  check_not_empty("mean", input.value().numel(), input.shape());
  return mul(sum(input), 1 / static_cast<double>(input.value().numel()));
}

Variable sum(const Variable& given, const Dims& dims, bool keepdim) {
  const Variable input = autograd::autocast(autograd::CastClass::float32, given);
  const autograd::Function operation("sum", {input});
  const Reduction reduction("sum", input.shape(), dims);
  const Tensor& x = input.value();
  Tensor out = Tensor::empty(reduction.result(keepdim), x.dtype(), x.device());
  sum_along(x, reduction, out);
  return operation.record(std::move(out), {},
                          [shape = input.shape(), kept = reduction.result(true)](autograd::Backward& pass) {
                            pass.add(0, pass.grad().reshape(kept).expand(shape).contiguous());
                          });
}

Variable mean(const Variable& input, const Dims& dims, bool keepdim) {
  const std::int64_t count = Reduction("mean", input.shape(), dims).count();
  check_not_empty("mean", count, input.shape());
  return mul(sum(input, dims, keepdim), 1 / static_cast<double>(count));
}

MaxResult max_with_indices(const Variable& input, std::int64_t dim, bool keepdim) {
  const autograd::Function operation("max", {input});
  const Shape& shape = input.shape();
  const std::size_t at = checked_dim("max", dim, shape.size());
  check_not_empty("max", shape[at], shape);
  const Tensor x = input.value().contiguous();
  const std::int64_t inner = numel(Shape(shape.begin() + at + 1, shape.end()));
  const Axis axis{numel(Shape(shape.begin(), shape.begin() + at)), shape[at], inner};
  const Shape result_shape = Reduction("max", shape, {dim}).result(keepdim);
  Tensor values = Tensor::empty(result_shape, x.dtype(), x.device());
  Tensor indices = Tensor::empty(result_shape, DType::int64, x.device());
  kernels::of(x).max(x, axis, values, indices);
  Variable recorded = operation.record(std::move(values), {indices}, [axis, shape](autograd::Backward& pass) {
    Tensor gradient = Tensor::zeros(shape, pass.grad().dtype(), pass.grad().device());
    kernels::of(gradient).scatter_add(pass.grad(), axis, pass.saved(0), gradient);
    pass.add(0, std::move(gradient));
  });
  return {std::move(recorded), std::move(indices)};
}

Variable max(const Variable& input, const Dims& dims, bool keepdim) {
  const Reduction reduction("max", input.shape(), dims);
  const std::int64_t count = reduction.count();
  check_not_empty("max", count, input.shape());
  const Variable rows = reshape(permute(input, reduction.kept_first()), {input.value().numel() / count, count});
  return reshape(max_with_indices(rows, 1).values, reduction.result(keepdim));
}

Variable softmax(const Variable& input, std::int64_t dim) {
  return softmax_along("softmax", input, dim, false);
}
Variable log_softmax(const Variable& input, std::int64_t dim) {
  return softmax_along("log_softmax", input, dim, true);
}

}  // namespace ddprun
