#pragma once

#include <memory>
#include <string>
#include <vector>

#include "ddprun/worker/comm/execution/transport.h"

namespace ddprun::comm {

// What a group leaves to the one that is formed after it in the same processes.
struct PreviousGroup {
  std::shared_ptr<Transport> transport;  // for whoever has a use for it to take; the group itself is gone
  std::string prefix;                    // of the group's keys in the store: which one it was
  int size = 0;
  std::vector<int> kept;  // by the new group's ranks: the rank in the former one; -1 of a newcomer
};

}  // namespace ddprun::comm
