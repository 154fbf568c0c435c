#pragma once

#include <memory>
#include <string>

#include "rendezvous/store/store.h"
#include "worker/comm/comm_config.h"
#include "worker/comm/launch_env.h"
#include "worker/comm/process_group.h"

namespace ddprun {

namespace comm {
struct PreviousGroup;
}

struct InitOptions {
  // auto, self, gloo, shm, hierarchical, mpi or nccl; auto chooses what fits where the ranks run.
  std::string backend = "auto";
  CommConfig config{};  // freeze_bound also bounds the store's silence; an empty local_address is taken from env
  WorkerEnv env;
  std::shared_ptr<comm::PreviousGroup> previous_group{};  // as in GroupOptions
};

// Returns a reserve of shared memory, for InitOptions::previous_group: some time after a group has taken memory from
// it, it makes as much ahead for the next one in this process.
std::shared_ptr<comm::PreviousGroup> reserve_for_next_group();

// This process's membership of the job: the store, and the group of all ranks.
//
// Ownership: owns the group, the store's connection, and, where rank 0 serves the store, its server. Destroying it
// leaves the group, then the store; a rank 0 that serves the store waits until all other ranks have left or died, or 30
// s have passed. Threads: construct and destroy in one thread; group() and store() return thread-safe objects. Errors:
// none; see init_process_group().
class World {
 public:
  virtual ~World() = default;

  virtual ProcessGroup& group() = 0;
  // The store for the program's own keys: they are separate from the group's keys and from other attempts'. With one
  // rank, it is in memory.
  virtual Store& store() = 0;
  virtual const WorkerEnv& env() const = 0;
};

// Joins the job that env describes: connects to the store at MASTER_ADDR:MASTER_PORT, which the launcher serves
// (TORCHELASTIC_USE_AGENT_STORE) or else rank 0 starts, and forms the group of all ranks. Keys are under
// /worker/attempt_<restart count>, as in PyTorch. MPI is asked for what env lacks. Throws the cause of a failure,
// within the timeout.
std::unique_ptr<World> init_process_group(const InitOptions& options);

}  // namespace ddprun
