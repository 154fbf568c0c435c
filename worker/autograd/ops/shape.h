#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

// Shares the memory; one size may be -1.
Variable reshape(const Variable& input, Shape shape);
// (batch, ...) -> (batch, everything else)
Variable flatten(const Variable& input);
// Of all elements -> scalar.
Variable sum(const Variable& input);
Variable mean(const Variable& input);

}  // namespace ddprun
