#pragma once

#include "ddprun/worker/comm/group_options.h"

namespace ddprun::comm {

// Whether a back end compares each call before it carries it out, though that costs a message: GroupOptions::checked.
bool compares_calls(const GroupOptions& options);

}  // namespace ddprun::comm
