#pragma once

#include <memory>

#include "worker/reducer/comm_hook.h"

namespace ddprun {

// Makes a hook that multiplies gradients by a factor before another one, which it owns, averages them: for gradients
// whose average is over other ranks than those that have them.
std::unique_ptr<CommHook> make_scaled_hook(std::unique_ptr<CommHook> hook, double factor);

}  // namespace ddprun
