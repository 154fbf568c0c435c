#pragma once

#include <optional>

#include "worker/comm/process_group.h"
#include "worker/parallel/forms/data/call_order.h"

namespace ddprun {

// The order of a first pass, for ranks without samples for it: the first rank that has some broadcasts each event
// before it takes place, so that all ranks start the same operations in the same order. Later passes keep it.
//
// Call begin_pass(), then at a rank with samples send() for each event and end_pass(), at another rank receive() until
// it returns none.
//
// Ownership: the group outlives this object. Threads: one at a time; all methods are collective.
// Errors: those of the group; Errc::usage for a pass for which no rank has samples; Errc::mismatch, naming the ranks,
// where two ranks with samples differ in their order.
class OrderBroadcast {
 public:
  explicit OrderBroadcast(ProcessGroup& group) : group_(group) {}

  // If some rank has no samples, the pass is broadcast.
  void begin_pass(bool has_samples);
  bool is_needed() const { return source_.has_value(); }
  void send(CallOrder::Event event);
  void end_pass();
  std::optional<CallOrder::Event> receive();

 private:
  using Message = std::optional<CallOrder::Event>;  // none: the pass ends
  Message exchange(const Message& own);

  ProcessGroup& group_;
  std::optional<int> source_;  // the rank whose order is broadcast; none if every rank has samples
};

}  // namespace ddprun
