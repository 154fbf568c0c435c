#pragma once

#include <functional>

#include "ddprun/worker/trainer/commands/command.h"
#include "ddprun/worker/trainer/state/datasets.h"
#include "ddprun/worker/trainer/trainer.h"

namespace ddprun::trainer {

// A rank of a job whose process group is formed. All of it outlives the call of what is given it.
struct StartedRank {
  const WorkerEnv& place;  // with what MPI says of it
  const Datasets& datasets;
  const Trainer::Context context;
};

// Makes this process a rank of the job that the settings describe, and returns what body returns, the exit code.
// command: its name. Call it while the process has one thread. Throws Errc::usage for what the ranks' settings
// of their group differ in, and what the parts throw.
int run_as_rank(const CommandContext& context, const char* command,
                const std::function<int(const StartedRank& rank)>& body);

// Throws Errc::io for progress that could not be written to standard output.
void check_output(const Progress& progress);

}  // namespace ddprun::trainer
