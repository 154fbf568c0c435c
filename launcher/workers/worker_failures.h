#pragma once

#include <string>
#include <vector>

#include "launcher/report/memory_evidence.h"
#include "launcher/workers/worker.h"
#include "rendezvous/job_result.h"

namespace ddprun {

// The place where workers failed, and the known facts about all of them. Borrows the evidence.
struct FailureContext {
  int first_rank = 0;
  int group_rank = 0;
  std::string host;
  std::string executable;
  bool error_files_stay = true;  // false: they are removed at the end of the job, so that no report names them
  MemoryEvidence& memory;
};

// Describes why a worker failed, by the most definite report of the kernel, the worker itself and its agent. It need
// not have ended. last_lines are those of its standard error. Reads the worker's error file.
WorkerFailure failure_of(const Worker& worker, const FailureContext& context, std::string last_lines,
                         std::int64_t noticed_us);

}  // namespace ddprun
