#include "worker/parallel/context/gathered_attention.h"

#include <vector>

#include "worker/autograd/function.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/layers/attention.h"
#include "worker/parallel/context/zigzag.h"

namespace ddprun {
namespace {

Variable gather_positions(const Variable& own, ContextGroup& group) {
  const autograd::Function operation("gather_positions", {own});
  return operation.record(group.gather_positions(own.value()), {},
                          [&group](autograd::Backward& pass) { pass.add(0, group.sum_positions(pass.dense_grad())); });
}

}  // namespace

Variable gathered_attention(const Variable& packed, std::int64_t heads, ContextGroup& group,
                            nn::Dropout& weights_dropout) {
  const std::int64_t width = packed.shape()[2] / 3, positions = packed.shape()[1] * group.size();
  const std::vector<Variable> own = split(packed, {width, 2 * width}, 2);
  const std::vector<Variable> all = split(gather_positions(own[1], group), {width, width}, 2);
  const Tensor mask = nn::causal_mask(numbers_of_positions(positions, group.rank(), group.size()), positions);
  return nn::attention_with_dropout(own[0], all[0], all[1], heads, mask, weights_dropout);
}

}  // namespace ddprun
