#pragma once

#include <string>

#include "rendezvous/job_result.h"

// The description of a worker's failure, and the choice of the root cause; both are the same on every node.
namespace ddprun {

// "exit code 7", "ended by SIGSEGV", "out of memory: ..."
std::string end_description(const WorkerFailure& failure);

// "rank 3 (local rank 1, pid 4711) on host b failed: exit code 7"
std::string failure_text(const WorkerFailure& failure);

// The reason why a job ends by this failure: failure_text(), or the bare sentence of a usage error, with the host if
// the job has several nodes.
std::string job_result_text(const WorkerFailure& failure, int nodes);

// The exit code of ddprun if this is the root cause: the worker's own code or 128 + signal; never 0.
int exit_code_of(const WorkerFailure& failure);

// Orders failures by how likely they are the root cause, the likeliest first: failures that do not blame a lost peer;
// then the one observed first; then those by a signal, since a worker that exits may have reacted to another failure;
// then the lowest rank.
bool is_likelier_cause(const WorkerFailure& a, const WorkerFailure& b);

}  // namespace ddprun
