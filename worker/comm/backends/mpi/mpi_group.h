#pragma once

#include <memory>

#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// A process group over MPI (mpi_library.h): each rank is a process that MPI has started, and the group gets a
// communicator of its own. A group of one rank needs no MPI. Throws Errc::unsupported where there is no MPI, or where
// MPI has not started the ranks; otherwise what make_transport_group() throws.
//
// MPI ends the whole job when one of its processes dies: then no rank gets an error, nor can it form another group.
std::unique_ptr<ProcessGroup> make_mpi_group(const GroupOptions& options);

}  // namespace ddprun::comm
