#include "worker/parallel/forms/context/gathered_attention.h"

#include <vector>

#include "worker/autograd/function.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/layers/attention.h"
#include "worker/parallel/forms/context/zigzag.h"
#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun {
namespace {

// (batch, time / ranks, width) -> (batch, time, width): all ranks' positions in their order.
Tensor all_positions(const Tensor& given, CountedGroup& group) {
  const Tensor own = given.contiguous();
  const int ranks = group.size();
  Shape shape = own.shape(), by_rank = own.shape();
  shape[1] *= ranks;
  by_rank[0] *= ranks;
  Tensor parts = Tensor::empty(by_rank, own.dtype(), own.device()),
         all = Tensor::empty(shape, own.dtype(), own.device());
  group.run(own.bytes() * static_cast<std::size_t>(ranks - 1),
            [&] { group.group().allgather(span_of_tensor(own), span_of_tensor(parts), {.blocking = true}); });
  for (int rank = 0; rank < ranks; ++rank)
    put_positions(parts.slice(0, rank * own.size(0), own.size(0)), 1, rank, ranks, all);
  return all;
}

// The reverse: the ranks' sum at own positions.
Tensor sum_at_own_positions(const Tensor& all, CountedGroup& group) {
  const int ranks = group.size();
  Shape shape = all.shape(), by_rank = all.shape();
  shape[1] /= ranks;
  by_rank[0] *= ranks;
  by_rank[1] = shape[1];
  Tensor parts = Tensor::empty(by_rank, all.dtype(), all.device()),
         sum = Tensor::empty(shape, all.dtype(), all.device());
  for (int rank = 0; rank < ranks; ++rank) {
    Tensor part = parts.slice(0, rank * shape[0], shape[0]);
    kernels::copy(own_positions(all, 1, rank, ranks), part);
  }
  group.run(sum.bytes() * static_cast<std::size_t>(ranks - 1), [&] {
    group.group().reduce_scatter(span_of_tensor(parts), span_of_tensor(sum), ReduceOp::sum, {.blocking = true});
  });
  return sum;
}

Variable gather_positions(const Variable& own, CountedGroup& group) {
  const autograd::Function operation("gather_positions", {own});
  return operation.record(all_positions(own.value(), group), {}, [&group](autograd::Backward& pass) {
    pass.add(0, sum_at_own_positions(pass.dense_grad(), group));
  });
}

}  // namespace

Variable gathered_attention(const Variable& packed, std::int64_t heads, CountedGroup& group,
                            nn::Dropout& weights_dropout) {
  const std::int64_t width = packed.shape()[2] / 3, positions = packed.shape()[1] * group.size();
  const std::vector<Variable> own = split(packed, {width, 2 * width}, 2);
  const std::vector<Variable> all = split(gather_positions(own[1], group), {width, width}, 2);
  const Tensor mask = nn::causal_mask(numbers_of_positions(positions, group.rank(), group.size()), positions);
  return nn::attention_with_dropout(own[0], all[0], all[1], heads, mask, weights_dropout);
}

}  // namespace ddprun
