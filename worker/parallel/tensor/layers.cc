#include "ddprun/worker/parallel/tensor/layers.h"

#include "ddprun/common/error.h"
#include "ddprun/worker/autograd/ops/elementwise.h"
#include "ddprun/worker/autograd/ops/indexing.h"
#include "ddprun/worker/autograd/ops/matmul.h"

namespace ddprun {
namespace {

// Indices from this rank's first one on, and which of them it has (1) or not (0): (...) and (..., 1).
struct OwnIndices {
  Tensor indices, has;
};

OwnIndices own_indices(const Tensor& given, std::int64_t entries, const TensorGroup& group, DType dtype) {
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

}  // namespace

ColumnParallelLinear::ColumnParallelLinear(nn::WeightedLayer& layer, TensorGroup& group)
    : layer_(layer), group_(group) {
  register_parameter("weight", layer.weight());
  if (layer.bias().defined()) register_parameter("bias", layer.bias());
}

Variable ColumnParallelLinear::forward(const Variable& input) {
  return layer_.apply(copy_to_group(input, group_), layer_.weight(), layer_.bias());
}

RowParallelLinear::RowParallelLinear(nn::WeightedLayer& layer, TensorGroup& group) : layer_(layer), group_(group) {
  register_parameter("weight", layer.weight());
  if (layer.bias().defined()) register_parameter("bias", layer.bias());
}

Variable RowParallelLinear::forward(const Variable& input) {
  const Variable sum = reduce_from_group(layer_.apply(input, layer_.weight(), {}), group_);
  return layer_.bias().defined() ? add(sum, layer_.bias()) : sum;
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(const nn::Module& embedding, TensorGroup& group)
    : weight_(register_parameter("weight", embedding.parameter("weight"))), group_(group) {}

Variable VocabularyParallelEmbedding::forward(const Variable& indices) {
  const auto [own, has] = own_indices(indices.value(), weight_.shape()[0], group_, weight_.dtype());
  return reduce_from_group(mul(embedding(own, weight_), Variable(has)), group_);
}

VocabularyParallelHead::VocabularyParallelHead(const nn::Module& head, TensorGroup& group)
    : weight_(register_parameter("weight", head.parameter("weight"))), group_(group) {}

Variable VocabularyParallelHead::forward(const Variable& input) {
  return linear(copy_to_group(input, group_), weight_);
}

}  // namespace ddprun
