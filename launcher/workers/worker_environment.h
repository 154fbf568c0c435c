#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "common/environment.h"
#include "rendezvous/round.h"

namespace ddprun {

// The values that the launcher exports to every worker besides those of the round.
struct WorkerEnvSpec {
  std::vector<int> omp_threads;  // OMP_NUM_THREADS by local rank; empty: the agent's value
  std::string role = "default";
  std::string run_id = "none";
  int max_restarts = 0;
  std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
  std::string timer_file;           // the watchdog's pipe; empty: no watchdog
  std::string training_memory;      // where a worker publishes its training (TrainingMemory::address()); empty: nowhere
  bool virtual_local_rank = false;  // LOCAL_RANK=0 for every worker, which sees only one GPU
  // The Unix socket at which this node's agent serves the workers' store (local_socket.h); empty: none.
  std::string store_socket;
  std::string store_notice;   // where the agent tells of the store's moves (store_notice.h); empty: nowhere
  int token_descriptor = -1;  // the job's token, which the workers inherit; -1: none
  bool pmi = false;           // the launcher serves PMI-1 to the workers
  std::optional<std::uint64_t> recovery{};  // DDPRUN_RECOVERY; none: single workers are not replaced
  bool agent_store = true;  // an agent serves the store at the master address; false: worker rank 0 does
};

// The environment of one worker: the agent's own and torchrun's exports, in torchrun's spelling (True and False); where
// the launcher serves PMI-1, also the variables that MPICH's processes read. error_file is empty for none;
// pmi_descriptor is that of the worker's socket. Throws Errc::usage where own_device() does.
Environment worker_environment(const Environment& agent, const WorkerEnvSpec& spec, const Round& round, int local_rank,
                               const std::string& error_file, int pmi_descriptor = -1);

// The environments of one round's workers in the form for execve, one at a time. The shared variables are written once,
// since every page that is written between two forks is copied.
//
// Ownership: borrows its arguments, which must outlive it. Threads: not thread-safe. Errors: of() throws Errc::usage
// where own_device() does.
class WorkerEnvironments {
 public:
  WorkerEnvironments(const Environment& agent, const WorkerEnvSpec& spec, const Round& round);

  // Returns worker_environment() as "NAME=value", the shared variables first; valid until the next call.
  std::span<const std::string> of(int local_rank, const std::string& error_file, int pmi_descriptor = -1);
  // Returns the environment of a process that may become the worker of any local rank (standby_socket.h), whose
  // descriptor this is: the shared variables first, then room for a worker's own. It has no rank. error_file: as
  // that of a worker, so that the guardian's marker is there. REQUIRES: omp_threads are the same for all workers.
  std::span<const std::string> of_standby(const std::string& error_file, int descriptor);

 private:
  const Environment& agent_;
  const WorkerEnvSpec& spec_;
  const Round& round_;
  std::vector<std::string> entries_;
  std::size_t shared_ = 0;
};

// The worker's entry of CUDA_VISIBLE_DEVICES: the one of its local rank in the agent's list, or the local rank itself
// without a list. Throws Errc::usage when the list is too short.
std::string own_device(const Environment& agent, int local_rank);

}  // namespace ddprun
