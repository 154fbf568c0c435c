#include "worker/nn/layers/position_embedding.h"

#include <vector>

#include "common/error.h"
#include "worker/autograd/ops/shape.h"

namespace ddprun::nn {

Variable PositionEmbedding::forward(const Variable& tokens) {
  const Variable weight = parameter("weight");
  const std::int64_t rows = weight.shape()[0];
  const Shape& shape = tokens.shape();
  std::vector<Variable> pieces;
  for (const SampleRange& range : ranges_of(sample_part_, shape.size() == 2 ? shape[1] : rows + 1)) {
    if (range.start + range.length > rows)
      throw make_error(Errc::mismatch, "tokens of shape {}, not (batch, time) with positions below {}",
                       to_string(shape), rows);
    pieces.push_back(range.length == rows ? weight : slice(weight, 0, range.start, range.length));
  }
  return pieces.size() == 1 ? pieces.front() : concat(pieces, 0);
}

}  // namespace ddprun::nn
