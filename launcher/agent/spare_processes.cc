#include "launcher/agent/spare_processes.h"

#include <utility>

namespace ddprun {

// Ranks and addresses are those of the worker that a process becomes.
void SpareProcesses::keep(const StandBy& asked) {
  round_ = Round{.generation = asked.generation,
                 .members = {{.node_id = "", .host = host_, .address = "", .nproc = nproc_}},
                 .world_size = asked.world_size};
  ready_.reset();
}

std::optional<bool> SpareProcesses::look() {
  if (!round_) return std::nullopt;
  const bool ready = group_.stand_by(*round_);
  if (std::exchange(ready_, ready) == ready) return std::nullopt;
  return ready;
}

}  // namespace ddprun
