#include "ddprun/worker/parallel/tensor/tensor_group.h"

#include "ddprun/worker/autograd/operation.h"

namespace ddprun {

template <class Operation>
void TensorGroup::run(std::size_t elements, Operation operation) {
  const auto start = std::chrono::steady_clock::now();
  operation();
  waited_ += std::chrono::steady_clock::now() - start;
  elements_ += elements;
}

Tensor TensorGroup::sum(const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  Tensor result = Tensor::empty_like(dense);
  const auto count = static_cast<std::size_t>(dense.numel());
  run(count, [&] {
    group_.allreduce({dense.raw(), count, dense.dtype()}, {result.raw(), count, result.dtype()}, ReduceOp::sum,
                     {.blocking = true});
  });
  return result;
}

void TensorGroup::reduce(std::vector<double>& values, ReduceOp op) {
  run(values.size(), [&] { group_.allreduce(span_of(values), op, {.blocking = true}); });
}

Variable copy_to_group(const Variable& input, TensorGroup& group) {
  const autograd::Operation operation("copy_to_group", {input});
  return operation.record(input.value(), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.sum(pass.grad())); });
}

Variable reduce_from_group(const Variable& input, TensorGroup& group) {
  const autograd::Operation operation("reduce_from_group", {input});
  return operation.record(group.sum(input.value()), {},
                          [](autograd::Backward& pass) { pass.add(0, pass.dense_grad()); });
}

}  // namespace ddprun
