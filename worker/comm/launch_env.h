#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "common/environment.h"

namespace ddprun {

// A worker's rank, and the job that it belongs to, as its launcher (ddprun, torchrun, mpirun, srun) says in the
// environment. A plain value.
struct WorkerEnv {
  int rank = 0;
  int world_size = 1;  // 0 if ask_mpi() is to find it
  int local_rank = 0;
  int local_world_size = 1;               // 0 if ask_mpi() is to find it and the local rank
  std::string master_addr = "127.0.0.1";  // the store's address; empty if ask_mpi() is to find it
  std::uint16_t master_port = 29500;
  std::string store_socket;      // DDPRUN_STORE_SOCKET: the Unix socket of the store (local_socket.h); empty: none
  int token_descriptor = -1;     // DDPRUN_TOKEN_FD: the inherited descriptor of the job's token; -1 if there is none
  bool use_agent_store = false;  // the launcher serves the store; otherwise rank 0 does
  int restart_count = 0;         // the job-wide generation
  int max_restarts = 0;
  std::string run_id = "none";
  std::string error_file;       // the file for the reason of a failure; empty if there is none
  std::string training_record;  // where the launcher reads this rank's training (training_memory.h); empty: nowhere
  // DDPRUN_RECOVERY: the first generation of the process group that this worker is a member of, where the launcher
  // replaces single workers; otherwise not set.
  std::optional<int> recovery{};
  std::string store_notice;       // where the launcher tells of the store's moves (store_notice.h); empty: it stays
  std::string network_interface;  // GLOO_SOCKET_IFNAME, one name or several; empty for the one that routes to the store

  // Reads RANK and WORLD_SIZE; if they are absent, the variables of Open MPI, of PMI (MPICH, Intel MPI), of MVAPICH, of
  // a Slurm step or of PMIx, which lack the size; if none is set, the world size is 1. A larger world needs
  // MASTER_ADDR, unless MPI or PMIx has started it: what their variables do not say is left to ask_mpi(). MASTER_PORT
  // defaults to 29500, LOCAL_RANK to RANK, LOCAL_WORLD_SIZE to WORLD_SIZE. Throws Errc::usage with the variable, its
  // value and the values that are allowed.
  static WorkerEnv from(const Environment& environment);
};

// Returns env with what it lacks (world_size, local_world_size, master_addr) filled in from MPI, which this
// initializes; returns at once when env lacks nothing. Every process that MPI has started calls it, or
// init_process_group(), which does. Where the others do not, the process ends after bound with a line that says so.
// Throws Errc::usage where this build has no MPI, otherwise what MPI reports.
WorkerEnv ask_mpi(const WorkerEnv& env, std::chrono::milliseconds bound);

}  // namespace ddprun
