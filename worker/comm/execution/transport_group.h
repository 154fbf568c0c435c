#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {

// The kind of group that its caller asked for.
struct GroupKind {
  std::string_view backend;  // as the user named it: the same at all ranks
  // Makes a group of the same kind for some of the ranks; null if this kind has no subgroups.
  std::unique_ptr<ProcessGroup> (*make_sibling)(const GroupOptions&) = nullptr;
};

// A ProcessGroup over any Transport: executors for collectives and for messages, and a PeerMonitor that finds out why
// the group fails. Blocks until the transport is connected. Throws what prevents the group from forming, within
// options.timeout; Errc::mismatch at once, at all ranks, naming two of them whose options differ where they must not.
std::unique_ptr<ProcessGroup> make_transport_group(std::shared_ptr<Transport> transport, const GroupOptions& options,
                                                   GroupKind kind);

// Does the same with a transport that depends on where the ranks run: they exchange their locations first.
// place: that of this rank's device.
std::unique_ptr<ProcessGroup> make_transport_group(const TransportFactory& factory, const GroupOptions& options,
                                                   GroupKind kind, const DevicePlace& place = {});

}  // namespace ddprun::comm
