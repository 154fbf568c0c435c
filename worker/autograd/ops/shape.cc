#include "worker/autograd/ops/shape.h"

#include <numeric>

#include "common/error.h"
#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
Variable reshape(const Variable& input, Shape shape) {
  const autograd::Function operation("reshape", {input});
  return operation.record(
      input.value().contiguous().reshape(std::move(shape)), {},
      [before = input.shape()](autograd::Backward& pass) { pass.add(0, pass.grad().reshape(before)); });
}

Variable flatten(const Variable& input) {
  if (input.shape().empty()) throw make_error(Errc::mismatch, "flatten: a scalar has no batch dimension");
  return reshape(input, {input.shape()[0], input.shape()[0] > 0 ? -1 : 0});
}

Variable permute(const Variable& input, const std::vector<std::int64_t>& dims) {
  const autograd::Function operation("permute", {input});
  Tensor value = input.value().permute(dims);
  return operation.record(std::move(value), {}, [dims](autograd::Backward& pass) {
    std::vector<std::int64_t> inverse(dims.size());
    for (std::size_t i = 0; i < dims.size(); ++i)
      inverse[checked_dim("permute", dims[i], dims.size())] = static_cast<std::int64_t>(i);
    pass.add(0, pass.grad().permute(inverse).contiguous());
  });
}

Variable transpose(const Variable& input, std::int64_t dim0, std::int64_t dim1) {
  const autograd::Function operation("transpose", {input});
  Tensor value = input.value().transpose(dim0, dim1);
  return operation.record(std::move(value), {}, [dim0, dim1](autograd::Backward& pass) {
    pass.add(0, pass.grad().transpose(dim0, dim1).contiguous());
  });
}

Variable slice(const Variable& input, std::int64_t dim, std::int64_t start, std::int64_t length) {
  const autograd::Function operation("slice", {input});
  Tensor value = input.value().slice(dim, start, length);
  return operation.record(std::move(value), {}, [dim, start, length, shape = input.shape()](autograd::Backward& pass) {
    Tensor gradient = Tensor::zeros(shape, pass.grad().dtype(), pass.grad().device());
    Tensor part = gradient.slice(dim, start, length);
    kernels::copy(pass.grad(), part);
    pass.add(0, std::move(gradient));
  });
}

Variable select(const Variable& input, std::int64_t dim, std::int64_t index) {
  Shape shape = input.shape();
  shape.erase(checked_dim("select", dim, shape.size()));
  return reshape(slice(input, dim, index, 1), shape);
}

Variable expand(const Variable& input, const Shape& shape) {
  const autograd::Function operation("expand", {input});
  Tensor value = input.value().expand(shape);
  return operation.record(std::move(value), {}, [before = input.shape()](autograd::Backward& pass) {
    pass.add(0, kernels::sum_to(pass.grad(), before));
  });
}

Variable contiguous(const Variable& input) {
  if (input.value().is_contiguous()) return input;
  const autograd::Function operation("contiguous", {input});
  return operation.record(input.value().contiguous(), {}, [](autograd::Backward& pass) { pass.add(0, pass.grad()); });
}

Variable to_device(const Variable& input, Device device) {
  if (!input.defined() || input.device() == device) return input;
  const autograd::Function operation("to_device", {input});
  return operation.record(input.value().to(device), {},
                          [from = input.device()](autograd::Backward& pass) { pass.add(0, pass.grad().to(from)); });
}

Variable concat(const std::vector<Variable>& given, std::int64_t dim) {
  if (given.empty()) throw Error(Errc::usage, "concat: there is nothing to concatenate");
  std::vector<Variable> inputs = given;
  autograd::autocast(autograd::CastClass::widest, inputs);
  const autograd::Function operation("concat", inputs);
  Shape shape = inputs[0].shape();
  const std::size_t at = checked_dim("concat", dim, shape.size());
  std::vector<std::int64_t> lengths;
  for (const Variable& input : inputs) {
    Shape expected = shape;
    expected[at] = input.shape().size() == shape.size() ? input.shape()[at] : -1;
    if (input.shape() != expected || input.dtype() != inputs[0].dtype()) {
      throw make_error(Errc::mismatch, "concat: a {} of shape {} does not continue a {} of shape {} in dimension {}",
                       name_of(input.dtype()), to_string(input.shape()), name_of(inputs[0].dtype()), to_string(shape),
                       dim);
    }
    lengths.push_back(expected[at]);
  }
  shape[at] = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  Tensor out = Tensor::empty(shape, inputs[0].dtype(), inputs[0].device());
  std::int64_t start = 0;
  for (std::size_t i = 0; i < inputs.size(); start += lengths[i++]) {
    Tensor part = out.slice(dim, start, lengths[i]);
    kernels::copy(inputs[i].value(), part);
  }
  return operation.record(std::move(out), {}, [dim, lengths](autograd::Backward& pass) {
    std::int64_t from = 0;
    for (std::size_t i = 0; i < lengths.size(); from += lengths[i++])
      if (pass.wants(i)) pass.add(i, pass.grad().slice(dim, from, lengths[i]).contiguous());
  });
}

std::vector<Variable> split(const Variable& input, const std::vector<std::int64_t>& lengths, std::int64_t dim) {
  const std::int64_t total = std::accumulate(lengths.begin(), lengths.end(), std::int64_t{0});
  if (total != input.value().size(dim)) {
    throw make_error(Errc::usage, "split: the parts add up to {}, dimension {} of the input of shape {} is {}", total,
                     dim, to_string(input.shape()), input.value().size(dim));
  }
  std::vector<Variable> parts;
  std::int64_t start = 0;
  for (const std::int64_t length : lengths) {
    parts.push_back(slice(input, dim, start, length));
    start += length;
  }
  return parts;
}

}  // namespace ddprun
