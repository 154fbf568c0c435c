#pragma once

#include <functional>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/parallel/sharding/redistribution_plan.h"

namespace ddprun::sharding {

// Reads a range of a tensor from the file of a rank (Transfer::file, Transfer::read_offset) into memory of so many
// elements. Its errors end redistribute().
using ReadRange = std::function<void(const Transfer& transfer, Span into)>;

// Executes a plan: moves the parts that this process has to the processes that are to have them, tensor by tensor, so
// that besides both layouts it needs the memory of one tensor's part. All processes of the group call it, each with its
// part of the plan.
//
// Ownership: all arguments are the caller's, and in use until it returns. Threads: one at a time for a group.
//
// from, to: by tensor, this process' parts in both layouts, in memory of the host; empty ones of the tensor's dtype if
// it has none. They do not overlap. Padding in to is not written.
//
// Errors: Errc::io naming the first range that nobody has, at all processes and before anything is sent; those of the
//   group; those of read, and Errc::usage for a part that is smaller than its layout, which abort the group, so that
//   nobody waits.
void redistribute(const Redistribution& redistribution, const RedistributionPlan& plan,
                  const std::vector<ConstSpan>& from, const std::vector<Span>& to, ProcessGroup& group,
                  const ReadRange& read = {});

}  // namespace ddprun::sharding
