#pragma once

#include <cstdint>
#include <string>

#include "ddprun/common/environment.h"

namespace ddprun {

// A worker's place in its job, as the launcher (ddprun, torchrun, mpirun, srun) put it into the environment.
struct WorkerEnv {
  int rank = 0;
  int world_size = 1;
  int local_rank = 0;
  int local_world_size = 1;
  std::string master_addr = "127.0.0.1";  // where the store is
  std::uint16_t master_port = 29500;
  bool use_agent_store = false;  // the launcher serves the store; otherwise rank 0 has to
  int restart_count = 0;         // the job-wide generation
  int max_restarts = 0;
  std::string run_id = "none";
  std::string error_file;         // where to leave the reason of a failure; empty: nowhere
  std::string network_interface;  // GLOO_SOCKET_IFNAME, one or several; empty: the one towards the store

  // RANK and WORLD_SIZE; where they are absent, those of Open MPI, of PMI (MPICH, Intel MPI) or of a Slurm step; where
  // none is set, a world of one. A world of more needs MASTER_ADDR, unless MPI or Slurm say that all ranks are on this
  // host. MASTER_PORT defaults to 29500, LOCAL_RANK to RANK, LOCAL_WORLD_SIZE to WORLD_SIZE. Throws Errc::usage naming
  // the variable, its value and what would be right.
  static WorkerEnv from(const Environment& environment);
};

}  // namespace ddprun
