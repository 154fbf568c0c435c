#pragma once

#include <optional>
#include <string>
#include <utility>

#include "launcher/agent/agent_state.h"
#include "launcher/workers/worker_group.h"
#include "rendezvous/round.h"

namespace ddprun {

// The processes that stand by on a node that is a spare (--spares): one for each of its local ranks.
//
// Ownership: borrows the worker group, which has the processes. Threads: single-threaded, on the main thread. Errors:
// none; where no process can be started, they are never ready, and the node's workers start as usual.
class SpareProcesses {
 public:
  // host: of this node. nproc: the number of its workers.
  SpareProcesses(WorkerGroup& group, std::string host, int nproc)
      : group_(group), host_(std::move(host)), nproc_(nproc) {}

  // The server asks for them, which a server that has come later knows nothing of.
  void keep(const StandBy& asked);
  bool kept() const { return round_.has_value(); }
  // This node joins a round, whose workers they become.
  void hand_over() { round_.reset(); }
  // Starts those that are missing. Returns whether all are ready, if that is new since keep().
  std::optional<bool> look();

 private:
  WorkerGroup& group_;
  const std::string host_;
  const int nproc_;
  std::optional<Round> round_;  // a round in which this node would take part; none: there are no such processes
  std::optional<bool> ready_;   // as returned last since then
};

}  // namespace ddprun
