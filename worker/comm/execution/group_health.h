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
#include <vector>

#include "common/error.h"
#include "worker/comm/execution/transport.h"
#include "worker/comm/group_options.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/peer_monitor.h"
#include "worker/comm/operations/completion.h"

namespace ddprun::comm {

class Executor;

// Decides whether a group works: the log of this rank's operations, the monitor of its peers, and the first error that
// ends the group. Thread-safe.
class GroupHealth {
 public:
  // Starts the monitor. options outlive this object. backend: as the user named it. Throws Errc::mismatch when other
  // ranks ask for other options.
  GroupHealth(const GroupOptions& options, std::string_view backend);

  OperationLog& operation_log() { return operation_log_; }
  const std::string& identity() const { return monitor_->identity(); }

  // From here on the transport, which outlives this object, is interrupted when the group breaks. Throws Errc::aborted
  // if it is broken already.
  void attach(Transport& transport);
  // All ranks are connected. From here on the executors, which outlive this object, are cancelled when the group
  // breaks.
  void group_formed(std::vector<Executor*> executors, const TransportTraits& traits);

  bool broken() const { return broken_; }
  // The same flag, for code that checks it while it waits.
  const std::atomic<bool>& broken_flag() const { return broken_; }
  // Stopped once the group is broken; may outlive this object.
  std::stop_token broken_token() const { return broken_source_.get_token(); }
  // Returns why the group is broken, if it is. Inline, as every collective asks this.
  std::optional<Error> cause() const { return broken_ ? locked_cause() : std::nullopt; }
  // Returns the same, after waiting for it at most that long.
  std::optional<Error> await_cause(std::chrono::milliseconds at_most);
  // Returns the cause of a failure to connect: waits for it as long as the store needs to report a peer's death.
  std::optional<Error> cause_behind(const Error& failure);
  // Returns the cause of a transport's failure, as the monitor finds it, within a bounded time; breaks the group. A
  // mismatch is its own cause.
  Error explain(OperationLog::Slot slot, const Operation& operation, const std::exception& failure);
  // Ends the group. published: what this rank reports to the others; none if they know already.
  void break_with(const Error& error, const std::optional<GroupFailure>& published = std::nullopt);
  // Only reports to the others.
  void publish(const GroupFailure& failure) { monitor_->publish(failure); }

  // Operations that were called and have not finished.
  int unfinished() const { return unfinished_; }
  void begin() { ++unfinished_; }
  // Inline, as every collective that was started calls it. Counted before the waiter wakes up, which may destroy the
  // group.
  void finish(Completion& work, const std::optional<Error>& error = std::nullopt, int source = -1) {
    --unfinished_;
    if (error) {
      work.fail(*error);
    } else {
      work.complete(source);
    }
  }

  // Returns a transport's own timeout: by then the monitor has long ended the operation.
  std::chrono::milliseconds backstop(std::chrono::milliseconds timeout) const { return timeout + backstop_margin_; }

 private:
  std::optional<Error> locked_cause() const;

  mutable std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::optional<Error> cause_;
  Transport* transport_ = nullptr;
  std::vector<Executor*> executors_;

  std::atomic<bool> broken_ = false;  // there is a cause; readable without mutex_
  std::stop_source broken_source_;
  std::atomic<int> unfinished_ = 0;
  OperationLog operation_log_;
  std::chrono::milliseconds backstop_margin_{};  // more than the monitor takes to end an operation
  const std::unique_ptr<PeerMonitor> monitor_;   // last, as it uses all members above
};

}  // namespace ddprun::comm
