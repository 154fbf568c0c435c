#pragma once

#include "worker/optim/parameter_group.h"

namespace ddprun::optim {

// Gradient clipping, between backward() and the optimizer's step: PyTorch's torch.nn.utils.clip_grad. Gradients are
// changed in place; a parameter without one is left out.
//
// With data-parallel training: call these once the gradients are averaged. All ranks then have the same gradients, so
// the same norm, and clip alike without another message.
//
// Threads: one at a time, as for the parameters' gradients.
// Errors: Errc::usage for a bound that is not above 0.

// Multiplies all gradients by max_norm / (n + 1e-6) if that is below 1; n: the Euclidean norm of all of them together,
// taken in double. Returns n, as it was before. A norm that is not finite is returned too, and
// then gradients become zero or NaN, as in PyTorch (error_if_nonfinite = False).
double clip_grad_norm(const NamedParameters& parameters, double max_norm);

// The two halves of clip_grad_norm(), for a norm over parameters of which some are divided among ranks: the sum of the
// squares of the gradients; and the multiplication, given the norm of all.
double grad_square_sum(const NamedParameters& parameters);
void clip_grads_with_norm(const NamedParameters& parameters, double max_norm, double norm);

// The variants for which the host does not wait for a CUDA device: the sum, one float64, is where the gradients are.
// REQUIRES of grad_square_sum_there(): a gradient.
Tensor grad_square_sum_there(const NamedParameters& parameters);
void clip_grads_with_square_sum(const NamedParameters& parameters, double max_norm, const Tensor& square_sum);

// Limits every element to [-clip_value, clip_value]. A NaN stays NaN.
void clip_grad_value(const NamedParameters& parameters, double clip_value);

}  // namespace ddprun::optim
