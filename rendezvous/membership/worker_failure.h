#pragma once

#include <string>

#include "ddprun/rendezvous/rendezvous.h"

// What is said of a worker's failure, and which of several is the cause; the same at every node.
namespace ddprun {

// "exit code 7", "ended by SIGSEGV", "out of memory: ..."
std::string how_it_ended(const WorkerFailure& failure);

// "rank 3 (local rank 1, pid 4711) on host b failed: exit code 7"
std::string failure_text(const WorkerFailure& failure);

// Why a job ends by this failure: failure_text(), or the bare sentence of a usage error, with the host if the job has
// several nodes.
std::string verdict_text(const WorkerFailure& failure, int nodes);

// What ddprun exits with when this is the root cause: the worker's own code, 128 + signal, never 0.
int exit_code_of(const WorkerFailure& failure);

// Whether a is rather the root cause than b: one that does not itself blame another, then the one observed first, then,
// of those observed at once, one ended by a signal (who exits by itself may have reacted), then the lower rank.
bool rather_the_cause(const WorkerFailure& a, const WorkerFailure& b);

}  // namespace ddprun
