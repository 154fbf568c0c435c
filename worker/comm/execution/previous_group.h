#pragma once

#include <memory>
#include <string>
#include <vector>

#include "worker/comm/execution/transport.h"

namespace ddprun::comm {

// The things that a group passes to the one that an ElasticGroup forms after it in the same processes.
struct PreviousGroup {
  std::shared_ptr<Transport> transport;  // taken by the next group's, if that can use it; the group itself is destroyed
  std::string prefix;                    // the beginning of the group's keys in the store, which identifies it
  int size = 0;
  std::vector<int> kept;  // by rank of the next group: its rank in this one, or -1
};

}  // namespace ddprun::comm
