#include "worker/autograd/ops/indexing.h"

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

using kernels::Axis;

Tensor checked_indices(const char* name, const Tensor& indices, std::int64_t size) {
  if (indices.dtype() != DType::int64) {
    throw make_error(Errc::mismatch, "{}: the indices are {}, not int64", name, name_of(indices.dtype()));
  }
  Tensor dense = indices.contiguous();
  if (dense.device().type != DeviceType::cpu) return dense;  // a look at them would wait for the device
  const std::int64_t* index = dense.data<std::int64_t>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (index[i] >= 0 && index[i] < size) continue;
    throw make_error(Errc::usage, "{}: index {} is not within [0, {})", name, index[i], size);
  }
  return dense;
}

Axis checked_axis(const char* name, const Shape& shape, std::int64_t dim, const Shape& indices) {
  const std::size_t at = checked_dim(name, dim, shape.size());
  Shape expected = shape;
  if (indices.size() == shape.size()) expected[at] = indices[at];
  if (indices != expected) {
    throw make_error(Errc::mismatch, "{}: indices of shape {} for an input of shape {}: only dimension {} may differ",
                     name, to_string(indices), to_string(shape), dim);
  }
  return {numel(Shape(shape.begin(), shape.begin() + at)), shape[at],
          numel(Shape(shape.begin() + at + 1, shape.end()))};
}

void check_source(const char* name, const Variable& input, const Tensor& indices, const Variable& source) {
  if (source.shape() == indices.shape() && source.dtype() == input.dtype()) return;
  throw make_error(Errc::mismatch, "{}: a {} source of shape {} does not fit indices of shape {} and a {} input", name,
                   name_of(source.dtype()), to_string(source.shape()), to_string(indices.shape()),
                   name_of(input.dtype()));
}

void add_source_gradient(autograd::Backward& pass, const Axis& axis) {
  if (!pass.wants(1)) return;
  const Tensor& indices = pass.saved(0);
  Tensor gradient = Tensor::empty(indices.shape(), pass.grad().dtype(), pass.grad().device());
  kernels::of(gradient).gather(pass.grad(), axis, indices, gradient);
  pass.add(1, std::move(gradient));
}

// Returns rows of a matrix by their indices (...) -> (..., width).
Variable rows_of(const autograd::Function& operation, const Variable& matrix, const Tensor& given) {
  if (matrix.shape().size() != 2) {
    throw make_error(Errc::mismatch, "{}: the rows have shape {}, not (entries, width)", operation.name(),
                     to_string(matrix.shape()));
  }
  const Tensor indices = checked_indices(operation.name(), given, matrix.shape()[0]);
  const Tensor rows = matrix.value().contiguous();
  Shape shape = indices.shape();
  shape.push_back(rows.size(1));
  Tensor out = Tensor::empty(shape, rows.dtype(), rows.device());
  kernels::of(rows).gather_rows(rows, indices, out);
  return operation.record(std::move(out), {indices}, [shape_of_rows = rows.shape()](autograd::Backward& pass) {
    autograd::add_computed(pass, 0, shape_of_rows, [&](Tensor& sum, bool accumulate) {
      if (!accumulate) sum.fill(0);
      kernels::of(sum).scatter_add_rows(pass.grad().to(sum.dtype()), pass.saved(0), sum);
    });
  });
}

}  // namespace

Variable embedding(const Tensor& indices, const Variable& weight) {
  return rows_of(autograd::Function("embedding", {weight}, {indices}), weight, indices);
}

Variable index_select(const Variable& input, const Tensor& indices) {
  const autograd::Function operation("index_select", {input}, {indices});
  if (indices.dim() != 1)
    throw make_error(Errc::mismatch, "index_select: indices of shape {}, not (n)", to_string(indices.shape()));
  return rows_of(operation, input, indices);
}

Variable gather(const Variable& input, std::int64_t dim, const Tensor& given) {
  const autograd::Function operation("gather", {input}, {given});
  const Axis axis = checked_axis("gather", input.shape(), dim, given.shape());
  const Tensor indices = checked_indices("gather", given, axis.n), x = input.value().contiguous();
  Tensor out = Tensor::empty(indices.shape(), x.dtype(), x.device());
  kernels::of(x).gather(x, axis, indices, out);
  return operation.record(std::move(out), {indices}, [axis, shape = x.shape()](autograd::Backward& pass) {
    Tensor gradient = Tensor::zeros(shape, pass.grad().dtype(), pass.grad().device());
    kernels::of(gradient).scatter_add(pass.grad(), axis, pass.saved(0), gradient);
    pass.add(0, std::move(gradient));
  });
}

Variable scatter_add(const Variable& given_input, std::int64_t dim, const Tensor& given, const Variable& given_source) {
  const auto [input, source] = autograd::autocast(autograd::CastClass::widest, given_input, given_source);
  const autograd::Function operation("scatter_add", {input, source}, {given});
  const Axis axis = checked_axis("scatter_add", input.shape(), dim, given.shape());
  check_source("scatter_add", input, given, source);
  const Tensor indices = checked_indices("scatter_add", given, axis.n);
  Tensor out = input.value().clone();
  kernels::of(out).scatter_add(source.value().contiguous(), axis, indices, out);
  return operation.record(std::move(out), {indices}, [axis](autograd::Backward& pass) {
    if (pass.wants(0)) pass.add(0, pass.grad());
    add_source_gradient(pass, axis);
  });
}

Variable scatter(const Variable& given_input, std::int64_t dim, const Tensor& given, const Variable& given_source) {
  const auto [input, source] = autograd::autocast(autograd::CastClass::widest, given_input, given_source);
  const autograd::Function operation("scatter", {input, source}, {given});
  const Axis axis = checked_axis("scatter", input.shape(), dim, given.shape());
  check_source("scatter", input, given, source);
  const Tensor indices = checked_indices("scatter", given, axis.n);
  Tensor out = input.value().clone();
  kernels::of(out).scatter(source.value().contiguous(), axis, indices, out);
  return operation.record(std::move(out), {indices}, [axis](autograd::Backward& pass) {
    if (pass.wants(0)) {
      Tensor gradient = pass.grad().clone();
      const Tensor& replaced = pass.saved(0);
      const Tensor zeros = Tensor::zeros(replaced.shape(), gradient.dtype(), gradient.device());
      kernels::of(gradient).scatter(zeros, axis, replaced, gradient);
      pass.add(0, std::move(gradient));
    }
    add_source_gradient(pass, axis);
  });
}

}  // namespace ddprun
