#pragma once

#include "worker/autograd/ops/loss.h"
#include "worker/autograd/variable.h"

// An output layer and its loss in one, for many classes: scores exist for some rows at a time.
namespace ddprun {

// cross_entropy(linear(input, weight), targets): input (batch, width), weight (classes, width), targets (batch) int64.
// The gradients are computed with the loss, and scaled in the backward pass; nothing is computed again. chunk_bytes:
// the most memory that scores may take.
Variable linear_cross_entropy(const Variable& input, const Variable& weight, const Tensor& targets,
                              const CrossEntropyOptions& options = {},
                              std::int64_t chunk_bytes = std::int64_t{512} << 20);

}  // namespace ddprun
