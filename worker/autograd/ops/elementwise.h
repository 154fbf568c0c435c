#pragma once

#include "ddprun/worker/autograd/variable.h"

namespace ddprun {

class Generator;

// a + b: equal shapes, or b is a bias: its shape is the end of a's.
Variable add(const Variable& a, const Variable& b);
// a * b, element by element; equal shapes.
Variable mul(const Variable& a, const Variable& b);
Variable mul(const Variable& a, double factor);
Variable relu(const Variable& input);
// Zero with the given probability, the rest scaled by 1 / (1 - probability).
Variable dropout(const Variable& input, double probability, Generator& generator);

}  // namespace ddprun
