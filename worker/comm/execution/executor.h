#pragma once

#include <chrono>
#include <memory>
#include <optional>

#include "ddprun/worker/comm/execution/group_health.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/operations/call.h"
#include "ddprun/worker/comm/operations/checked_call.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {

// Carries the collectives of a group out, in the order of their calls: which thread is at which. Thread-safe.
class Executor {
 public:
  Executor(Transport& transport, GroupHealth& health, RankInfo rank_info)
      : transport_(transport), health_(health), rank_info_(rank_info) {}
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // The work fails at once when the group is broken.
  virtual WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) = 0;
  // The group is broken by cause: what is pending and nobody is at ends with it.
  virtual void drop(const Error& cause) = 0;
  // Returns when nobody is at anything any more. REQUIRES that nothing is pending.
  virtual void end() = 0;

 protected:
  // In the order of the calls.
  OperationLog::Slot note_begin(const Collective& collective) {
    return health_.operation_log().begin(collective.operation, collective.sequence, collective.timeout);
  }
  // Whether it is for the transport as it was called: neither empty nor made of others.
  bool passes_unchanged(const Collective& collective) const;
  // What it failed with, if it did. Puts the backstop in the place of the timeout.
  std::optional<Error> execute(Collective& collective, OperationLog::Slot slot) {
    return execute(collective, slot, passes_unchanged(collective));
  }
  std::optional<Error> execute(Collective& collective, OperationLog::Slot slot, bool unchanged);

  Transport& transport_;
  GroupHealth& health_;
  const RankInfo rank_info_;
};

// What fits the transport: lanes (lane_executor.h), or turns of the program's own threads (turn_executor.h).
std::unique_ptr<Executor> make_executor(Transport& transport, GroupHealth& health, RankInfo rank_info);

}  // namespace ddprun::comm
