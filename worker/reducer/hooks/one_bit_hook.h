#pragma once

#include <memory>

#include "worker/comm/process_group.h"
#include "worker/reducer/comm_hook.h"
#include "worker/reducer/one_bit_options.h"

namespace ddprun {

// Adam's momentum in one bit an element (Tang et al., "1-bit Adam", 2021). The gradients of the first freeze_step
// passes are averaged as they are; the second average v stays from then on. Afterwards each rank adds its gradient to
// the momentum m of all, and the ranks average the results, divided by the root of v, by their signs, as
// make_integer_hook() does, with error feedback. The bucket gets the gradient that leads from one m to the next,
// (m' - beta1 m) / (1 - beta1): an Adam with the same betas and freeze_step (OptimOptions) has this momentum.
//
// The paper sends m itself: all elements of a block then have momenta of one magnitude, and Adam divides that of an
// element with rare gradients by the root of a v that is next to zero. Here gradients that outgrow v move an element as
// fast as equal gradients of that v do, and no faster. An element whose v is zero gets no gradient.
//
// State: momentum, second average and error of each bucket, and the number of passes.
std::unique_ptr<CommHook> make_one_bit_hook(const OneBitOptions& options, ProcessGroup& group);

}  // namespace ddprun
