#pragma once

#include <string>
#include <vector>

#include "launcher/dashboard/job_view.h"

namespace ddprun::dashboard {

// Lines for the end of a job: the share of its time that was training and what the rest was, its recoveries with their
// durations by phase, and the steps and samples that were computed again. Empty for a job without a recovery, and for
// one whose workers report no training.
std::vector<std::string> recovery_summary(const JobView& view);

}  // namespace ddprun::dashboard
