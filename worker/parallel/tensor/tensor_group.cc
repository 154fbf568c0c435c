#include "worker/parallel/tensor/tensor_group.h"

#include "common/error.h"
#include "worker/autograd/function.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/slicing.h"

namespace ddprun {
namespace {

constexpr Slicing positions{.dim = 1};

}  // namespace

template <class Collective>
void TensorGroup::run(std::size_t bytes, Collective collective) {
  const auto start = std::chrono::steady_clock::now();
  collective();
  waited_ += std::chrono::steady_clock::now() - start;
  bytes_ += bytes;
}

Tensor TensorGroup::sum(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  Tensor result = Tensor::empty_like(dense);
  const auto count = static_cast<std::size_t>(dense.numel());
  run(dense.bytes(), [&] {
    group_.allreduce({dense.raw(), count, dense.dtype()}, {result.raw(), count, result.dtype()}, ReduceOp::sum,
                     {.blocking = true});
  });
  return result;
}

Tensor TensorGroup::gather_positions(const Tensor& own) {
  const Tensor part = own.contiguous();
  Tensor parts = Tensor::empty({size() * part.numel()}, part.dtype());
  run(parts.bytes() / 2, [&] { group_.allgather(span_of_tensor(part), span_of_tensor(parts), {.blocking = true}); });
  Tensor all = Tensor::empty(whole_shape(part.shape(), positions, size()), part.dtype());
  for (int rank = 0; rank < size(); ++rank)
    put_part(parts.slice(0, rank * part.numel(), part.numel()).reshape(part.shape()), positions, rank, size(), all);
  return all;
}

Tensor TensorGroup::sum_positions(const Tensor& all) {
  const Tensor dense = all.contiguous();
  if (dense.dim() < 2 || dense.size(1) % size() != 0)
    throw make_error(Errc::usage, "{} positions are no multiple of {} tensor-parallel ranks",
                     dense.dim() < 2 ? 0 : dense.size(1), size());
  const std::int64_t count = dense.numel() / size();
  Tensor parts = Tensor::empty({dense.numel()}, dense.dtype());
  Shape shape = dense.shape();
  shape[1] /= size();
  for (int rank = 0; rank < size(); ++rank)
    parts.slice(0, rank * count, count).copy_from(part_of(dense, positions, rank, size()).reshape({count}));
  Tensor sum = Tensor::empty(shape, dense.dtype());
  run(dense.bytes() / 2,
      [&] { group_.reduce_scatter(span_of_tensor(parts), span_of_tensor(sum), ReduceOp::sum, {.blocking = true}); });
  return sum;
}

Tensor TensorGroup::own_positions(const Tensor& all) const {
  return part_of(all.contiguous(), positions, rank(), size());
}

void TensorGroup::reduce(std::vector<double>& values, ReduceOp op) {
  run(values.size() * sizeof(double), [&] { group_.allreduce(span_of(values), op, {.blocking = true}); });
}

Variable copy_to_group(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("copy_to_group", {input});
  return operation.record(input.value(), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.sum(pass.grad())); });
}

Variable reduce_from_group(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("reduce_from_group", {input});
  return operation.record(group.sum(input.value()), {},
                          [](autograd::Backward& pass) { pass.add(0, pass.dense_grad()); });
}

Variable gather_from_sequence(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("gather_from_sequence", {input});
  return operation.record(group.gather_positions(input.value()), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.sum_positions(pass.grad())); });
}

Variable reduce_to_sequence(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("reduce_to_sequence", {input});
  return operation.record(group.sum_positions(input.value()), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.gather_positions(pass.grad())); });
}

Variable all_positions(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("all_positions", {input});
  return operation.record(group.gather_positions(input.value()), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.own_positions(pass.grad())); });
}

Variable own_positions(const Variable& input, TensorGroup& group) {
  const autograd::Function operation("own_positions", {input});
  return operation.record(group.own_positions(input.value()), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.gather_positions(pass.grad())); });
}

}  // namespace ddprun
