#pragma once

#include <string>
#include <vector>

// The signals of train.preempt_signal.
namespace ddprun::trainer {

std::vector<std::string> preempt_signal_names();
// Returns 0 for "none". Throws Errc::usage for a name that is none of preempt_signal_names().
int preempt_signal_number(const std::string& name);

}  // namespace ddprun::trainer
