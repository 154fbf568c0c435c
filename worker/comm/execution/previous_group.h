#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"

namespace ddprun::comm {

class SegmentReserve;

// The things that a group before in this process leaves to the next one, which an ElasticGroup passes on. All but the
// segments are set if the group before, in the same processes, has a transport to pass on.
struct PreviousGroup {
  std::shared_ptr<SegmentReserve> segments;   // null: none is held for this group
  std::shared_ptr<Transport> transport = {};  // taken by the group's, if that can use it; the one before is destroyed
  std::string prefix = {};                    // the beginning of that group's keys in the store, which identifies it
  int size = 0;                               // its size
  std::vector<int> kept = {};                 // by rank of the group: its rank in the one before, or -1
};

// Returns the reserve from which a group of these options takes its segments; null: it makes them itself.
inline std::shared_ptr<SegmentReserve> segments_for(const GroupOptions& options) {
  return options.previous_group ? options.previous_group->segments : nullptr;
}

}  // namespace ddprun::comm
