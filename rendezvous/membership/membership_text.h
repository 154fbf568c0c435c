#pragma once

#include <optional>
#include <string>

#include "ddprun/rendezvous/rendezvous.h"

// The sentences of a Membership, apart from its decisions.
namespace ddprun {

// "2" or "2:8", as typed after --nnodes.
std::string nnodes_text(const JobPolicy& policy);

// The first setting in which two policies differ, as "--max_restarts 3 where the job has 0"; none when they agree.
std::optional<std::string> policy_difference(const JobPolicy& job, const JobPolicy& node);

// "rank 3 (local rank 1) on host b failed: exit code 7", "...: killed by SIGKILL"
std::string failure_text(const WorkerFailure& failure);

// What ddprun exits with when this is the root cause: the worker's own code, 128 + signal, never 0.
int exit_code_of(const WorkerFailure& failure);

// "1 node", "3 nodes"
std::string count_text(int count, const char* noun);

// "30 s", "1.5 s"
std::string duration_text(std::chrono::milliseconds duration);

}  // namespace ddprun
