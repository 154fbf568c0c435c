#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>

#include "ddprun/common/error.h"
#include "ddprun/worker/comm/execution/transport.h"
#include "ddprun/worker/comm/group_options.h"
#include "ddprun/worker/comm/health/operation_log.h"
#include "ddprun/worker/comm/health/peer_monitor.h"
#include "ddprun/worker/comm/operations/completion.h"

namespace ddprun::comm {

class Executor;

// Whether a group is whole: the operation_log of what this rank does, the monitor of its peers, and the first cause,
// which ends the group. Thread-safe.
class GroupHealth {
 public:
  // Begins to watch. backend: as it was asked for. Throws Errc::mismatch when other ranks ask for something else.
  GroupHealth(const GroupOptions& options, std::string_view backend, Transport& transport);

  OperationLog& operation_log() { return operation_log_; }
  const std::string& identity() const { return monitor_->identity(); }
  // All ranks have come; executor holds what is pending when the group breaks. It outlives this object.
  void all_here(Executor& executor);

  bool broken() const { return broken_; }
  // Stopped once there is a cause; may outlive this object.
  std::stop_token broken_token() const { return broken_source_.get_token(); }
  // Why the group is broken, if it is.
  std::optional<Error> cause() const;
  // The same, once there is one, for some time at most.
  std::optional<Error> await_cause(std::chrono::milliseconds at_most);
  // Nothing but a cause that is there already, or comes when this is a death's first sign: the store knows it soon.
  std::optional<Error> cause_behind(const Error& failure);
  // The cause of a transport's failure, once the monitor has found it; within bounds. A mismatch explains itself.
  Error explain(OperationLog::Slot slot, const Operation& operation, const std::exception& failure);
  // Ends the group. published: what this rank reports to the others; none if they know already.
  void break_with(const Error& error, const std::optional<GroupFailure>& published = std::nullopt);
  // Tells the others alone.
  void publish(const GroupFailure& failure) { monitor_->publish(failure); }

  // Operations that were called and are not over.
  int unfinished() const { return unfinished_; }
  void begin() { ++unfinished_; }
  void finish(Completion& work, const std::optional<Error>& error = std::nullopt, int source = -1);

  // A transport gives up only when the monitor should long have ended the operation.
  std::chrono::milliseconds backstop(std::chrono::milliseconds timeout) const {
    return timeout + 2 * monitor_->diagnosis_delay() + std::chrono::seconds(5);
  }

 private:
  Transport& transport_;
  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Error> cause_;
  Executor* executor_ = nullptr;

  std::atomic<bool> broken_ = false;  // there is a cause: for a look without the lock
  std::stop_source broken_source_;
  std::atomic<int> unfinished_ = 0;
  OperationLog operation_log_;
  const std::unique_ptr<PeerMonitor> monitor_;  // last: reads and breaks all the above
};

}  // namespace ddprun::comm
