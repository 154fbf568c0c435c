#pragma once

#include <cstddef>
#include <functional>
#include <future>
#include <optional>
#include <vector>

#include "worker/trainer/commands/computed_step.h"

namespace ddprun::trainer {

// Holds what a job of a layout takes, if it can be computed; get() throws why the layout does not fit.
using LayoutStep = std::future<std::optional<ComputedStep>>;

// Calls compute for each index below count, on as many threads as there are processors, which have ended when it
// returns.
std::vector<LayoutStep> compute_all(std::size_t count,
                                    const std::function<std::optional<ComputedStep>(std::size_t index)>& compute);

}  // namespace ddprun::trainer
