#pragma once

#include "worker/autograd/variable.h"

// These compute element by element. Two operands are broadcast as in NumPy: aligned at the last dimension, a size of 1
// is repeated. They have one dtype; under autocast both are cast to the widest. Functors: worker/tensor/functors.
namespace ddprun {

Variable add(const Variable& a, const Variable& b);
Variable add(const Variable& a, double number);
Variable sub(const Variable& a, const Variable& b);
Variable mul(const Variable& a, const Variable& b);
Variable mul(const Variable& a, double factor);
Variable div(const Variable& a, const Variable& b);
// Equal operands share the gradient.
Variable maximum(const Variable& a, const Variable& b);
Variable minimum(const Variable& a, const Variable& b);

Variable neg(const Variable& input);
Variable abs(const Variable& input);
Variable exp(const Variable& input);
Variable log(const Variable& input);
Variable sqrt(const Variable& input);
Variable pow(const Variable& input, double exponent);
// Limits values to [low, high]; those outside have no gradient.
Variable clamp(const Variable& input, double low, double high);

// The results are 1 where the comparison is true, 0 elsewhere; uint8, without gradients.
Tensor equal(const Tensor& a, const Tensor& b);
Tensor not_equal(const Tensor& a, const Tensor& b);
Tensor less(const Tensor& a, const Tensor& b);
Tensor less_equal(const Tensor& a, const Tensor& b);
Tensor greater(const Tensor& a, const Tensor& b);
Tensor greater_equal(const Tensor& a, const Tensor& b);
// a where the condition (uint8) is not 0, else b; all three are broadcast.
Variable where(const Tensor& condition, const Variable& a, const Variable& b);

}  // namespace ddprun
