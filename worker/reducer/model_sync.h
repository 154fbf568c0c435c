#pragma once

#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/parameter_ref.h"

namespace ddprun {

// How the parameters and buffers of all ranks become alike, for any engine. Collective. Threads: one at a time for a
// group. Errors: the group's; the tensors' values are of no use then.

// Checks that all ranks have the same parameters: names in order, shapes, element types. Throws Errc::mismatch at every
// rank, naming the first entry that differs, both values and both ranks.
void check_same_model(ProcessGroup& group, const std::vector<ParameterRef>& parameters);
// Copies root's values to all ranks.
void broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root = 0);
// The variant that waits for no device if the group can do without: what is queued on it from now on runs afterwards
// (Work::order()). in_progress, if set, has to be waited for before the tensors are released.
void start_broadcast(ProcessGroup& group, const std::vector<ParameterRef>& tensors, int root, WorkPtr& in_progress);
// Makes all ranks equal to rank 0, once their models are known to match; throws as check_same_model() does.
void align_ranks(ProcessGroup& group, std::vector<ParameterRef> parameters, const std::vector<ParameterRef>& buffers);

}  // namespace ddprun
