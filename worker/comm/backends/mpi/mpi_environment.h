#pragma once

#include <optional>
#include <string>

#include "common/environment.h"
#include "worker/comm/backends/mpi/mpi_functions.h"

namespace ddprun::comm {

// Functions that read what the environment says of the MPI that started this process. All throw Errc::usage for a value
// that DDPRUN_MPI or DDPRUN_MPI_THREADS cannot have, and nothing else.

// Returns which MPI it was, by the variables that its launcher sets: "openmpi", "mpich", or empty when none did.
// DDPRUN_MPI overrides it.
std::string mpi_of(const Environment& environment);

// Returns this process's rank in MPI's world, as text, if the launcher says it.
std::optional<std::string> mpi_rank_of(const Environment& environment);

// The level to ask MPI_Init_thread for: DDPRUN_MPI_THREADS (single, funneled, serialized, multiple), or multiple.
ThreadLevel wanted_thread_level(const Environment& environment);

}  // namespace ddprun::comm
