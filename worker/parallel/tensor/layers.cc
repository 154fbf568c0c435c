#include "worker/parallel/tensor/layers.h"

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

Variable whole_input(const Variable& input, TensorGroup& group, Undivided undivided) {
  return undivided == Undivided::positions ? gather_from_sequence(input, group) : copy_to_group(input, group);
}

Variable sum_of_results(const Variable& result, TensorGroup& group, Undivided undivided) {
  return undivided == Undivided::positions ? reduce_to_sequence(result, group) : reduce_from_group(result, group);
}

}  // namespace

DividedLinear::DividedLinear(nn::WeightedLayer& layer, TensorGroup& group, Undivided undivided)
    : layer_(layer), group_(group), undivided_(undivided) {
  register_parameter("weight", layer.weight());
  if (layer.bias().defined()) register_parameter("bias", layer.bias());
  for (const auto& [name, buffer] : layer.named_buffers()) register_buffer(name, buffer);
}

Variable ColumnParallelLinear::forward(const Variable& input) {
  return layer_.apply(whole_input(input, group_, undivided_), layer_.weight(), layer_.bias());
}

RowParallelLinear::RowParallelLinear(nn::WeightedLayer& layer, TensorGroup& group, Undivided undivided)
    : DividedLinear(layer, group, undivided) {
  if (auto* rounded = dynamic_cast<nn::FakeQuantizedLayer*>(&layer))
    rounded->share_maxima([&group](std::vector<double>& maxima) { group.reduce(maxima, ReduceOp::max); });
}

Variable RowParallelLinear::forward(const Variable& input) {
  const Variable sum = sum_of_results(layer_.apply(input, layer_.weight(), {}), group_, undivided_);
  return layer_.bias().defined() ? add(sum, layer_.bias()) : sum;
}

Variable SlicesOfExperts::whole(const Variable& input) {
  return undivided_ == Undivided::positions ? all_positions(input, group_) : input;
}

Variable SlicesOfExperts::own(const Variable& result) {
  return undivided_ == Undivided::positions ? own_positions(result, group_) : result;
}

VocabularyParallelEmbedding::VocabularyParallelEmbedding(const nn::Module& embedding, TensorGroup& group,
                                                         Undivided undivided)
    : weight_(register_parameter("weight", embedding.parameter("weight"))), group_(group), undivided_(undivided) {}

Variable VocabularyParallelEmbedding::forward(const Variable& indices) {
  const auto [own, has] = own_indices(indices.value(), weight_.shape()[0], group_, weight_.dtype());
  return sum_of_results(mul(embedding(own, weight_), Variable(has)), group_, undivided_);
}

VocabularyParallelHead::VocabularyParallelHead(const nn::Module& head, TensorGroup& group, Undivided undivided)
    : weight_(register_parameter("weight", head.parameter("weight"))), group_(group), undivided_(undivided) {}

Variable VocabularyParallelHead::forward(const Variable& input) {
  return linear(whole_input(input, group_, undivided_), weight_);
}

}  // namespace ddprun
