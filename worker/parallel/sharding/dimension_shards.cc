#include "worker/parallel/sharding/dimension_shards.h"

#include "worker/parallel/group_tensors.h"
#include "worker/tensor/kernels.h"

namespace ddprun::sharding {
namespace {

// Returns a view (before, pieces, elements of a rank in a piece, after).
Tensor view_of_shard(const Tensor& whole, const Shard& shard, int rank, int ranks) {
  std::int64_t before = 1, after = 1;
  for (std::size_t i = 0; i < shard.dimension; ++i) before *= whole.shape()[i];
  for (std::size_t i = shard.dimension + 1; i < whole.shape().size(); ++i) after *= whole.shape()[i];
  const std::int64_t length = whole.shape()[shard.dimension] / (shard.pieces * ranks);
  return whole.reshape({before, shard.pieces, ranks, length, after}).select(2, rank);
}

}  // namespace

void DimensionShards::shard(nn::Module& model, const std::string& parameter, std::size_t dimension,
                            std::int64_t pieces) {
  const Shard shard{.axis = axis_, .dimension = dimension, .pieces = pieces};
  Variable variable = model.parameter(parameter);
  variable.set_value(local_shard(variable.value(), shard, group_.rank(), group_.size()));
  shards_.emplace(parameter, shard);
}

std::vector<std::string> DimensionShards::names() const {
  std::vector<std::string> all;
  for (const auto& [name, shard] : shards_) all.push_back(name);
  return all;
}

Tensor DimensionShards::whole(const std::string& parameter, const Tensor& local) const {
  const Shard* const shard = find(parameter);
  if (!shard) return local;
  const int ranks = group_.size();
  Tensor all = Tensor::empty({ranks * local.numel()}, local.dtype());
  group_.allgather(span_of_tensor(local), span_of_tensor(all), {.blocking = true});
  Tensor result = Tensor::empty(whole_shape(local.shape(), *shard, ranks), local.dtype());
  for (int rank = 0; rank < ranks; ++rank)
    put_local_shard(all.slice(0, rank * local.numel(), local.numel()).reshape(local.shape()), *shard, rank, ranks,
                    result);
  return result;
}

Tensor local_shard(const Tensor& whole, const Shard& shard, int rank, int ranks) {
  Shape shape = whole.shape();
  shape[shard.dimension] /= ranks;
  return view_of_shard(whole, shard, rank, ranks).clone().reshape(shape);
}

void put_local_shard(const Tensor& local, const Shard& shard, int rank, int ranks, Tensor& whole) {
  Tensor place = view_of_shard(whole, shard, rank, ranks);
  kernels::copy(local.reshape(place.shape()), place);
}

Shape whole_shape(const Shape& local, const Shard& shard, int ranks) {
  Shape shape = local;
  shape[shard.dimension] *= ranks;
  return shape;
}

}  // namespace ddprun::sharding
