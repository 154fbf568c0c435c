#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "ddprun/common/environment.h"
#include "ddprun/rendezvous/rendezvous.h"

namespace ddprun {

// What the launcher tells every worker of one round beside the round itself.
struct WorkerEnvSpec {
  std::vector<int> omp_threads;  // OMP_NUM_THREADS by local rank; empty: as the agent has it
  std::string role = "default";
  std::string run_id = "none";
  int max_restarts = 0;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string timer_file;           // the watchdog's pipe; empty: there is no watchdog
  bool virtual_local_rank = false;  // LOCAL_RANK=0 for every worker, which sees one GPU alone
  bool agent_store = true;          // the agents serve the store at the master address; no worker hosts one
};

// The environment of one worker: the agent's own plus what torchrun exports, in torchrun's spelling (True and False).
// error_file may be empty: then there is none.
Environment worker_environment(const Environment& agent, const WorkerEnvSpec& spec, const Round& round, int local_rank,
                               const std::string& error_file);

// The environments of one round's workers as execve wants them, one at a time: what they share is laid out once. A fork
// for each worker makes every page that is written anew in between a page to copy.
class WorkerEnvironments {
 public:
  WorkerEnvironments(const Environment& agent, const WorkerEnvSpec& spec, const Round& round);

  // worker_environment() as "NAME=value", the shared variables first. Valid until the next call.
  std::span<const std::string> of(int local_rank, const std::string& error_file);

 private:
  const Environment& agent_;
  const WorkerEnvSpec& spec_;
  const Round& round_;
  std::vector<std::string> entries_;
  std::size_t shared_ = 0;
};

// The entry of CUDA_VISIBLE_DEVICES that is a worker's own: its local rank's in the agent's list, or the local rank
// itself where there is none. Throws Errc::usage when the list is too short.
std::string own_device(const Environment& agent, int local_rank);

}  // namespace ddprun
