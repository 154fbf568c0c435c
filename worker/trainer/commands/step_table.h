#pragma once

#include <string>
#include <vector>

#include "worker/trainer/commands/step_plan.h"

namespace ddprun::trainer {

// Returns the lines of a table: a figure each, then where they come from.
std::vector<std::string> plan_table(const StepPlan& plan);

}  // namespace ddprun::trainer
