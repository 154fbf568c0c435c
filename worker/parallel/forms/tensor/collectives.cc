#include "worker/parallel/forms/tensor/collectives.h"

#include <utility>

#include "common/error.h"
#include "worker/autograd/placement_check.h"
#include "worker/parallel/group_tensors.h"
#include "worker/parallel/sharding/dimension_shards.h"

namespace ddprun {
namespace {

const sharding::Shard& shard_of_positions() {
  static const sharding::Shard shard{.axis = "tensor", .dimension = 1};
  return shard;
}

// Declares how the result of a collective over these ranks lies.
Variable placed(const autograd::Function& collective, const Variable& operand, autograd::PlacementChange change,
                Variable result) {
  return autograd::placed(collective, operand, shard_of_positions().axis, change, std::move(result));
}

constexpr autograd::PlacementChange to_local{.from_local = false, .to_local = true},
    to_replicated{.from_local = true, .to_local = false}, within_local{.from_local = true, .to_local = true};

std::size_t sent_by_allreduce(std::size_t bytes, int ranks) {
  const auto n = static_cast<std::size_t>(ranks);
  return 2 * (n - 1) * bytes / n;
}

// (batch, time / ranks, ...) -> (batch, time, ...): all ranks' positions.
Tensor gather_positions(const Tensor& given, CountedGroup& group) {
  const Tensor own = given.contiguous();
  const int ranks = group.size();
  Tensor parts = Tensor::empty({ranks * own.numel()}, own.dtype());
  group.run(sent_by_allreduce(parts.bytes(), ranks) / 2,
            [&] { group.group().allgather(span_of_tensor(own), span_of_tensor(parts), {.blocking = true}); });
  Tensor all = Tensor::empty(sharding::whole_shape(own.shape(), shard_of_positions(), ranks), own.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    sharding::put_local_shard(parts.slice(0, rank * own.numel(), own.numel()).reshape(own.shape()),
                              shard_of_positions(), rank, ranks, all);
  return all;
}

// Returns this rank's positions of such a tensor; nothing is communicated.
Tensor positions_of_rank(const Tensor& all, const CountedGroup& group) {
  return sharding::local_shard(all.contiguous(), shard_of_positions(), group.rank(), group.size());
}

// (batch, time, ...) -> (batch, time / ranks, ...): the ranks' sum at own positions.
Tensor sum_positions(const Tensor& all, CountedGroup& group) {
  const Tensor dense = all.contiguous();
  const int ranks = group.size();
  if (dense.dim() < 2 || dense.size(1) % ranks != 0)
    throw make_error(Errc::usage, "{} positions are no multiple of {} tensor-parallel ranks",
                     dense.dim() < 2 ? 0 : dense.size(1), ranks);
  const std::int64_t count = dense.numel() / ranks;
  Tensor parts = Tensor::empty({dense.numel()}, dense.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    parts.slice(0, rank * count, count)
        .copy_from(sharding::local_shard(dense, shard_of_positions(), rank, ranks).reshape({count}));
  Shape shape = dense.shape();
  shape[1] /= ranks;
  Tensor sum = Tensor::empty(shape, dense.dtype());
  group.run(sent_by_allreduce(dense.bytes(), ranks) / 2, [&] {
    group.group().reduce_scatter(span_of_tensor(parts), span_of_tensor(sum), ReduceOp::sum, {.blocking = true});
  });
  return sum;
}

}  // namespace

Tensor sum_over(CountedGroup& group, const Tensor& tensor) {
  const Tensor dense = tensor.contiguous();
  Tensor result = Tensor::empty_like(dense);
  const auto count = static_cast<std::size_t>(dense.numel());
  group.run(sent_by_allreduce(dense.bytes(), group.size()), [&] {
    group.group().allreduce({dense.raw(), count, dense.dtype()}, {result.raw(), count, result.dtype()}, ReduceOp::sum,
                            {.blocking = true});
  });
  return result;
}

void reduce_over(CountedGroup& group, std::vector<double>& values, ReduceOp op) {
  group.run(sent_by_allreduce(values.size() * sizeof(double), group.size()),
            [&] { group.group().allreduce(span_of(values), op, {.blocking = true}); });
}

Variable copy_to_group(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("copy_to_group", {input});
  return placed(operation, input, to_local, operation.record(input.value(), {}, [&group](autograd::Backward& pass) {
    pass.add(0, sum_over(group, pass.grad()));
  }));
}

Variable reduce_from_group(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("reduce_from_group", {input});
  return placed(operation, input, to_replicated,
                operation.record(sum_over(group, input.value()), {},
                                 [](autograd::Backward& pass) { pass.add(0, pass.dense_grad()); }));
}

Variable gather_from_sequence(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("gather_from_sequence", {input});
  return placed(operation, input, within_local,
                operation.record(gather_positions(input.value(), group), {}, [&group](autograd::Backward& pass) {
                  pass.add(0, sum_positions(pass.grad(), group));
                }));
}

Variable reduce_to_sequence(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("reduce_to_sequence", {input});
  return placed(operation, input, within_local,
                operation.record(sum_positions(input.value(), group), {}, [&group](autograd::Backward& pass) {
                  pass.add(0, gather_positions(pass.grad(), group));
                }));
}

Variable all_positions(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("all_positions", {input});
  return placed(operation, input, to_replicated,
                operation.record(gather_positions(input.value(), group), {}, [&group](autograd::Backward& pass) {
                  pass.add(0, positions_of_rank(pass.grad(), group));
                }));
}

Variable own_positions(const Variable& input, CountedGroup& group) {
  const autograd::Function operation("own_positions", {input});
  return placed(operation, input, to_local,
                operation.record(positions_of_rank(input.value(), group), {}, [&group](autograd::Backward& pass) {
                  pass.add(0, gather_positions(pass.grad(), group));
                }));
}

}  // namespace ddprun
