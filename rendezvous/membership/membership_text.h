#pragma once

#include <chrono>
#include <optional>
#include <string>

#include "rendezvous/job_policy.h"
#include "rendezvous/round.h"

// The texts of a Membership's messages.
namespace ddprun {

// "2" or "2:8", as the value of --nnodes.
std::string nnodes_text(const JobPolicy& policy);

// The first setting in which two policies differ, as "--max_restarts 3 where the job has 0"; nullopt if they agree.
std::optional<std::string> policy_difference(const JobPolicy& job, const JobPolicy& node);

// "1 node", "3 nodes"
std::string count_text(int count, const char* noun);

// " (rank 3)" or " (ranks 2-3)" for a member of the round; empty otherwise.
std::string ranks_text(const Round& round, std::optional<int> group_rank);

// "30 s", "1.5 s"
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace ddprun
