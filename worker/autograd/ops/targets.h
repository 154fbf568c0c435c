#pragma once

#include "worker/autograd/ops/loss.h"

namespace ddprun::autograd {

// Throws for targets and options that do not fit scores of this shape.
void check_targets(const char* name, const Shape& scores, const Tensor& targets, const CrossEntropyOptions& options);

}  // namespace ddprun::autograd
