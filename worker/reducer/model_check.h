#pragma once

#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/parameter_ref.h"

namespace ddprun {

// Checks that all ranks have the same parameters: names in order, shapes, element types. Throws Errc::mismatch at every
// rank, naming the first entry that differs, both values and both ranks. Collective.
void check_same_model(ProcessGroup& group, const std::vector<ParameterRef>& parameters);

}  // namespace ddprun
