#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>

#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/overdue_probe.h"

namespace ddprun::comm {

// Watches a group that goes on after its store has closed in order. No heartbeat and no notice of another rank arrives
// any longer, so that only an operation of this rank can show a failure: one that needs a rank that has left, whose
// process on this host ends, whose transport fails, or that passes its deadline. Used by one thread; no I/O.
class StorelessWatch {
 public:
  using Clock = OperationLog::Clock;

  // A rank may take part in an operation, leave in order, and end before this rank has finished the operation.
  static constexpr std::chrono::milliseconds end_grace{10'000};

  // left: the ranks that are known to have left. linger_timeout: that of Facts. operation_log: outlives the watch.
  StorelessWatch(int rank, int size, const OperationLog& operation_log, PeerRecords left,
                 std::optional<std::chrono::milliseconds> linger_timeout)
      : rank_(rank),
        size_(size),
        operation_log_(operation_log),
        left_(std::move(left)),
        linger_timeout_(linger_timeout),
        began_(Clock::now()) {}

  // Notes that the process of a rank on this host has ended. name: "rank 2 (pid 42 on host b)".
  void ended(int rank, std::string name, Clock::time_point now);
  // Returns the failure that an operation of this rank shows, if any. failure: the transport's, if it failed.
  std::optional<GroupFailure> look(Clock::time_point now, const std::optional<TransportFailure>& failure) const;

 private:
  struct End {
    std::string name;
    Clock::time_point noticed;
  };

  std::optional<GroupFailure> diagnose_operation(const OperationLog::Entry& entry, Clock::time_point now) const;
  std::optional<GroupFailure> diagnose_transport(const TransportFailure& failure, Clock::time_point now) const;
  // Names the ranks that the operation depends on whose processes ended that long ago.
  std::optional<GroupFailure> diagnose_ends(const Stall& stall, Clock::time_point since) const;

  const int rank_, size_;
  const OperationLog& operation_log_;
  const PeerRecords left_;
  const std::optional<std::chrono::milliseconds> linger_timeout_;
  const Clock::time_point began_;
  std::map<int, End> ended_;  // has none of those that are known to have left
};

}  // namespace ddprun::comm
