#include "worker/parallel/forms/tensor/layers.h"

#include <vector>

#include "common/error.h"
#include "worker/autograd/ops/elementwise.h"
#include "worker/autograd/ops/indexing.h"
#include "worker/autograd/ops/matmul.h"
#include "worker/autograd/ops/shape.h"
#include "worker/nn/quantization/fake_quantized_layer.h"

namespace ddprun {
namespace {

// Indices counted from this rank's first one, and which of them it has (1) or not (0): (...) and (..., 1).
struct OwnIndices {
  Tensor indices, has;
};

OwnIndices own_indices(const Tensor& given, std::int64_t entries, const CountedGroup& group, DType dtype) {
  const Tensor dense = given.contiguous();
  OwnIndices own{.indices = Tensor::empty_like(dense), .has = Tensor::empty(dense.shape())};
  const std::int64_t first = entries * group.rank();
  const auto* from = dense.data<std::int64_t>();
  auto* to = own.indices.data<std::int64_t>();
  auto* has = own.has.data<float>();
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (from[i] < 0 || from[i] >= entries * group.size())
      throw make_error(Errc::usage, "embedding: index {} is not within [0, {})", from[i], entries * group.size());
    const bool is_own = from[i] >= first && from[i] < first + entries;
    to[i] = is_own ? from[i] - first : 0;
    has[i] = is_own ? 1.0F : 0.0F;
  }
  Shape shape = dense.shape();
  shape.push_back(1);
  own.has = own.has.reshape(shape).to(dtype);
  return own;
}

Variable whole_input(const Variable& input, CountedGroup& group, Unsharded unsharded) {
  return unsharded == Unsharded::positions ? gather_from_sequence(input, group) : copy_to_group(input, group);
}

Variable sum_of_results(const Variable& result, CountedGroup& group, Unsharded unsharded) {
  return unsharded == Unsharded::positions ? reduce_to_sequence(result, group) : reduce_from_group(result, group);
}

}  // namespace

ShardedLinear::ShardedLinear(nn::WeightedLayer& layer, CountedGroup& group, Unsharded unsharded)
    : layer_(layer), group_(group), unsharded_(unsharded) {
  register_parameter("weight", layer.weight());
  if (layer.bias().defined()) register_parameter("bias", layer.bias());
  for (const auto& [name, buffer] : layer.named_buffers()) register_buffer(name, buffer);
}

Variable ColumnParallelLinear::forward(const Variable& input) {
  return layer_.apply(whole_input(input, group_, unsharded_), layer_.weight(), layer_.bias());
}

RowParallelLinear::RowParallelLinear(nn::WeightedLayer& layer, CountedGroup& group, Unsharded unsharded)
    : ShardedLinear(layer, group, unsharded) {
  if (auto* rounded = dynamic_cast<nn::FakeQuantizedLayer*>(&layer))
    rounded->share_maxima([&group](std::vector<double>& maxima) { reduce_over(group, maxima, ReduceOp::max); });
}

Variable RowParallelLinear::forward(const Variable& input) {
  const Variable sum = sum_of_results(layer_.apply(input, layer_.weight(), {}), group_, unsharded_);
  return layer_.bias().defined() ? add(sum, layer_.bias()) : sum;
}

Variable SlicesOfExperts::whole(const Variable& input) {
  return unsharded_ == Unsharded::positions ? all_positions(input, group_) : input;
}

Variable SlicesOfExperts::own(const Variable& result) {
  return unsharded_ == Unsharded::positions ? own_positions(result, group_) : result;
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(const nn::Module& embedding, CountedGroup& group,
                                                         Unsharded unsharded)
    : weight_(register_parameter("weight", embedding.parameter("weight"))), group_(group), unsharded_(unsharded) {}

Variable VocabularyParallelEmbedding::forward(const Variable& indices) {
  const auto [own, has] = own_indices(indices.value(), weight_.shape()[0], group_, weight_.dtype());
  return sum_of_results(mul(embedding(own, weight_), Variable(has)), group_, unsharded_);
}

VocabularyParallelHead::VocabularyParallelHead(const nn::Module& head, CountedGroup& group, Unsharded unsharded)
    : weight_(register_parameter("weight", head.parameter("weight"))), group_(group), unsharded_(unsharded) {}

Variable VocabularyParallelHead::forward(const Variable& input) {
  return linear(whole_input(input, group_, unsharded_), weight_);
}

}  // namespace ddprun
