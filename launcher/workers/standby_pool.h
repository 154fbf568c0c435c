#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <span>
#include <string>

#include "launcher/workers/guardian.h"
#include "launcher/workers/standby.h"
#include "launcher/workers/worker_process.h"

namespace ddprun {

// The processes of a node that stand by: one where its workers run, one for each local rank where the node is a spare.
//
// Ownership, threads and errors: as Standby's, of which it owns some.
class StandbyPool {
 public:
  explicit StandbyPool(Guardian& guardian) : guardian_(guardian) {}

  // Ends those that there are. Losses of processes count anew.
  void begin_round();
  // Starts as many processes as are missing, but no more that are lost again and again. spec: of the process of an
  // index. environment: as for Standby::start().
  void start(std::size_t count, const std::function<ProcessSpec(std::size_t index)>& spec,
             const std::function<std::span<const std::string>(int descriptor)>& environment);
  // Adopts any process that is ready, as Standby::adopt() does.
  std::optional<StartedProcess> adopt(const ProcessSpec& worker);
  // Does for each process what Standby::apply() does.
  bool apply(const ProcessChange& change);
  void kill();
  // Returns the number of processes that are ready.
  std::size_t ready();

 private:
  Guardian& guardian_;
  std::deque<Standby> standbys_;
};

}  // namespace ddprun
