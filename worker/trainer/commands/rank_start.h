#pragma once

#include <functional>

#include "worker/trainer/commands/command.h"
#include "worker/trainer/state/datasets.h"
#include "worker/trainer/trainer.h"

namespace ddprun::trainer {

// A rank of a job whose process group is formed. All of it outlives the call that gets it.
struct StartedRank {
  const WorkerEnv& place;  // completed with what MPI says of it
  const Datasets& datasets;
  const Trainer::Context context;
};

// Makes this process a rank of the job that the settings describe, and returns what body returns, the exit code.
// command: its name. Call it while the process has one thread. Throws Errc::usage for differences between the ranks'
// settings of their group, and what the parts throw.
int run_as_rank(const CommandContext& context, const char* command,
                const std::function<int(const StartedRank& rank)>& body);

// Throws Errc::io if progress could not be written to standard output.
void check_output(const Progress& progress);

}  // namespace ddprun::trainer
