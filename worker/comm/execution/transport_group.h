#pragma once

#include <memory>
#include <string_view>

#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {

// What was asked for.
struct GroupKind {
  std::string_view backend;  // by its name, which is the same at all ranks
  // The same for some of a group's ranks; none: it has no subgroups.
  std::unique_ptr<ProcessGroup> (*make_sibling)(const GroupOptions&) = nullptr;
};

// A ProcessGroup over any Transport: an Executor that carries collectives out, in lanes or in the callers' own threads;
// threads that wait for sends and receives; and a PeerMonitor that diagnoses failures.
// Throws what stood in the way of coming together, within the timeout; at once, at all ranks, Errc::mismatch naming two
// of them where not all ask for the same.
std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   GroupKind kind);

}  // namespace ddprun::comm
