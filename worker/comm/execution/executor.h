#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <optional>

#include "worker/comm/execution/group_health.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/operations/call.h"
#include "worker/comm/operations/completion.h"
#include "worker/comm/operations/composed.h"

namespace ddprun::comm {

// Decides which thread executes the operations of a group, and when:
//   QueueExecutor       collectives, on threads of the group;
//   CallerRunsExecutor  collectives, on the threads of the callers where possible;
//   MessageExecutor     sends and receives.
// Uses a transport and a GroupHealth, which outlive shutdown(). Thread-safe.
class Executor {
 public:
  Executor() = default;
  virtual ~Executor() = default;
  Executor(const Executor&) = delete;
  Executor& operator=(const Executor&) = delete;

  // Operations of one kind start in the order of the calls. The work fails at once when the group is broken.
  virtual WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) = 0;
  // Called when the group breaks, after the transport was interrupted: fails what has not been started.
  virtual void cancel(const Error& cause) = 0;
  // Returns once no thread executes anything any more. REQUIRES: no operation is pending, or the group is broken.
  virtual void shutdown() = 0;
};

// Executes one collective over a transport, for an Executor: records it in the operation log, composes it of elementary
// ones where the transport needs that, and explains its failure. Thread-safe as far as the transport is. Functions that
// every small collective calls are inline.
class CollectiveRunner {
 public:
  CollectiveRunner(Transport& transport, GroupHealth& health, RankInfo rank_info)
      : transport_(transport),
        health_(health),
        rank_info_(rank_info),
        accepts_raw_calls_(transport.traits().accepts_raw_calls) {}

  // Called in the order of the calls.
  OperationLog::Slot log_begin(const Collective& collective) {
    return health_.operation_log().begin(collective.operation, collective.sequence, collective.timeout);
  }
  // Returns whether the transport gets the collective as it was called: it is neither empty nor has to be composed.
  bool passes_unchanged(const Collective& collective) const {
    return !collective.operation.empty() && (accepts_raw_calls_ || is_elementary(collective, rank_info_));
  }
  // Returns the error, if it fails; ends the log entry. Replaces the collective's timeout by the backstop.
  std::optional<Error> run(Collective& collective, OperationLog::Slot slot, bool unchanged) {
    try {
      collective.timeout = health_.backstop(collective.timeout);
      if (unchanged) {
        transport_.execute(collective);
      } else if (!collective.operation.empty()) {
        execute_composed(collective);
      }
      health_.operation_log().end(slot);
      return std::nullopt;
    } catch (const std::exception& failure) {
      return fail(collective, slot, failure);
    }
  }

 private:
  void execute_composed(const Collective& collective);
  Error fail(const Collective& collective, OperationLog::Slot slot, const std::exception& failure);

  Transport& transport_;
  GroupHealth& health_;
  const RankInfo rank_info_;
  const bool accepts_raw_calls_;
};

}  // namespace ddprun::comm
