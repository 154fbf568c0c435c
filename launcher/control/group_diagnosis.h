#pragma once

#include <string>

#include "launcher/control/group_progress.h"

namespace ddprun {

// Describes in one line what blocks a group: the operation, the ranks that have not entered it, and where they are:
//   operation #412, allreduce(sum) of 262144 float32: rank 3 (pid 88 on host n2) has not entered it: it is in #411,
//   barrier, for 12.3 s; 3 ranks wait in it, for up to 12.1 s
// Otherwise the line says that nothing does. Records are up to a second old, so ranks count as waiting after 3 s. Pure.
std::string diagnose(const GroupProgress& group);

}  // namespace ddprun
