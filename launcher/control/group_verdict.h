#pragma once

#include <string>

#include "ddprun/launcher/control/group_progress.h"

namespace ddprun {

// What holds a group up, in one line that names the operation, the ranks that have not come to it and where they are:
//   operation #412, allreduce(sum) of 262144 float32: rank 3 (pid 88 on host n2) has not come: it is in #411, barrier,
//   for 12.3 s; 3 ranks wait in it, for up to 12.1 s
// Or that nothing does. Records are up to a second old: what has taken less than a few is no sign of trouble.
std::string verdict_on(const GroupProgress& group);

}  // namespace ddprun
