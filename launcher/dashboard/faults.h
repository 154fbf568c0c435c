#pragma once

#include <string>
#include <string_view>

#include "rendezvous/job_result.h"

// The faults before a recovery (fault_names in job_view.h), as the texts and reports of an agent tell of them. Pure.
namespace ddprun::dashboard {

// Returns the fault elsewhere that the server gives as the reason for a round.
std::string fault_in(std::string_view reason);
// Returns the fault that the failure of a worker of this node is.
std::string fault_of(const WorkerFailure& failure);
// Returns whether a change of the round has interrupted the step: otherwise the training goes on after one.
bool is_loss(std::string_view reason);

// "rank 3 on host b was ended by SIGKILL: out of memory"
std::string fault_text(const WorkerFailure& failure);

}  // namespace ddprun::dashboard
