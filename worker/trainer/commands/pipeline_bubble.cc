#include "worker/trainer/commands/pipeline_bubble.h"

#include "worker/parallel/forms/pipeline/simulation.h"

namespace ddprun::trainer {

double bubble_of(const TrainConfig::Parallel& parallel) {
  if (parallel.ranks.on("pipeline") == 1) return 0;
  return simulate(pipeline::plan_schedule(pipeline::parse_schedule(parallel.schedule),
                                          {.ranks = parallel.ranks.on("pipeline"),
                                           .micro_batches = parallel.micro_batches,
                                           .virtual_stages = parallel.virtual_stages}))
      .bubble();
}

}  // namespace ddprun::trainer
