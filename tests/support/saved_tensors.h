#pragma once

#include <vector>

#include "worker/autograd/node.h"

namespace ddprun::testing {

// Returns what the operation that made this result keeps for the backward pass.
inline std::vector<Tensor> saved_tensors(const Variable& result) {
  const autograd::Edge edge = autograd::Access::edge(result);
  return edge.node ? edge.node->saved : std::vector<Tensor>{};
}

}  // namespace ddprun::testing
