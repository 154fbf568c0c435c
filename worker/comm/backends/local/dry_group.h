#pragma once

#include <memory>

#include "worker/comm/process_group.h"

namespace ddprun::comm {

// Makes one rank of a group whose other ranks do not exist, so that code runs as it does at this rank of a job of any
// size, for what follows from shapes and numbers of ranks. An operation has ended when its call returns. Small results
// are those with which the others agree: a reduction gives this rank's input, and from another rank comes what this one
// sends to it, or has sent itself. Messages, and results of more than a megabyte, leave the memory as it is. allocate()
// reserves addresses (reserve_address_space()). Subgroups are of the same kind.
std::unique_ptr<ProcessGroup> make_dry_group(int rank, int size);

}  // namespace ddprun::comm
