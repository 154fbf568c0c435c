#include "worker/autograd/ops/activation.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/ops/mapped.h"
#include "worker/autograd/recomputation.h"
#include "worker/tensor/random.h"

namespace ddprun {

using autograd::unary;
using kernels::Unary;

Variable relu(const Variable& input) {
  return unary("relu", Unary::relu, input);
}
Variable tanh(const Variable& input) {
  return unary("tanh", Unary::tanh, input);
}
Variable sigmoid(const Variable& input) {
  return unary("sigmoid", Unary::sigmoid, input);
}
Variable silu(const Variable& input) {
  return unary("silu", Unary::silu, input);
}
Variable gelu(const Variable& input) {
  return unary("gelu", Unary::gelu, input);
}
Variable gelu_tanh(const Variable& input) {
  return unary("gelu_tanh", Unary::gelu_tanh, input);
}

Variable dropout(const Variable& input, double probability, Generator& generator) {
  // This call has a stream of its own; the caller's generator advances.
  const std::uint64_t stream = autograd::draw_stream(generator);
  const autograd::Function operation("dropout", {input});
  const Tensor x = input.value().contiguous();
  Tensor y = Tensor::empty_like(x);
  const std::uint64_t seed = generator.state().seed;
  kernels::of(x).dropout(x, probability, seed, {stream}, 0, y);
  return operation.record(std::move(y), {}, [probability, seed, stream](autograd::Backward& pass) {
    Tensor gradient = Tensor::empty_like(pass.grad());
    kernels::of(gradient).dropout(pass.grad(), probability, seed, {stream}, 0, gradient);
    pass.add(0, std::move(gradient));
  });
}

Variable dropout(const Variable& input, double probability, std::uint64_t seed, std::vector<std::uint64_t> streams,
                 std::uint64_t first) {
  const autograd::Function operation("dropout", {input});
  const Tensor x = input.value().contiguous();
  if (x.dim() < 1 || x.size(0) != static_cast<std::int64_t>(streams.size())) {
    throw make_error(Errc::mismatch, "dropout: {} streams for an input of shape {}: one for each row is needed",
                     streams.size(), to_string(x.shape()));
  }
  Tensor y = Tensor::empty_like(x);
  kernels::of(x).dropout(x, probability, seed, streams, first, y);
  // The mask is drawn again rather than kept: random numbers cost less than memory.
  return operation.record(std::move(y), {},
                          [probability, seed, streams = std::move(streams), first](autograd::Backward& pass) {
                            Tensor gradient = Tensor::empty_like(pass.grad());
                            kernels::of(gradient).dropout(pass.grad(), probability, seed, streams, first, gradient);
                            pass.add(0, std::move(gradient));
                          });
}

}  // namespace ddprun
