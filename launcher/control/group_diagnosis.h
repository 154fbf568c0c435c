#pragma once

#include <string>

#include "ddprun/launcher/control/group_progress.h"

namespace ddprun {

// Says in one line what holds a group up: the operation, the ranks that have not entered it, and where they are:
//   operation #412, allreduce(sum) of 262144 float32: rank 3 (pid 88 on host n2) has not entered it: it is in #411,
//   barrier, for 12.3 s; 3 ranks wait in it, for up to 12.1 s
// Or that nothing does: records are up to a second old, so an operation counts as waiting only after three. Pure.
std::string diagnose(const GroupProgress& group);

}  // namespace ddprun
