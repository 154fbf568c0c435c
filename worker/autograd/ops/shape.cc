#include "ddprun/worker/autograd/ops/shape.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/autograd/tape.h"
#include "ddprun/worker/tensor/kernels.h"

namespace ddprun {

Variable reshape(const Variable& input, Shape shape) {
  return autograd::record(
      input.value().reshape(std::move(shape)), {input},
      [before = input.shape()](autograd::Backward& pass) { pass.add(0, pass.grad().reshape(before)); });
}

Variable flatten(const Variable& input) {
  if (input.shape().empty()) throw make_error(Errc::mismatch, "flatten: a scalar has no batch dimension");
  return reshape(input, {input.shape()[0], input.shape()[0] > 0 ? -1 : 0});
}

Variable sum(const Variable& input) {
  return autograd::record(kernels::sum(input.value()), {input}, [like = input.value()](autograd::Backward& pass) {
    pass.add(0, Tensor::full(like.shape(), pass.grad().item(), like.dtype()));
  });
}

Variable mean(const Variable& input) {
  if (input.value().numel() == 0) {
    throw make_error(Errc::usage, "mean: the input of shape {} has no elements", to_string(input.shape()));
  }
  return mul(sum(input), 1 / static_cast<double>(input.value().numel()));
}

}  // namespace ddprun
