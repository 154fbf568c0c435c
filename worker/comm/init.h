#pragma once

#include <memory>
#include <string>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/comm_config.h"
#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/comm/worker_env.h"

namespace ddprun {

struct InitOptions {
  std::string backend = "auto";  // auto, self, gloo, shm, hierarchical or nccl; auto: what fits where the ranks run
  CommConfig config{};           // freeze_bound also of the store's silence; local_address empty: as env says
  WorkerEnv env;
};

// This process's membership of the job: the store, and the group of all ranks.
//
// Destroyed, it leaves in good order: the group first; then, where rank 0 serves the store itself, rank 0 stays until
// all the others have left, or have died, or a bound has passed.
class World {
 public:
  virtual ~World() = default;

  virtual ProcessGroup& group() = 0;
  // For the program's own use, apart from other attempts' and the group's keys. In a world of one, memory.
  virtual Store& store() = 0;
  virtual const WorkerEnv& env() const = 0;
};

// Joins the job that env describes: connects to the store at MASTER_ADDR:MASTER_PORT, which the launcher serves
// (TORCHELASTIC_USE_AGENT_STORE) or else rank 0 here and now, and brings the group of all ranks together. Keys lie
// under /worker/attempt_<restart count>, as PyTorch's do. Throws what stood in the way, within the timeout.
std::unique_ptr<World> init_process_group(const InitOptions& options);

}  // namespace ddprun
