#pragma once

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "rendezvous/store/store.h"
#include "worker/comm/group_options.h"
#include "worker/comm/health/diagnosis.h"
#include "worker/comm/health/disagreement_probe.h"
#include "worker/comm/health/local_processes.h"
#include "worker/comm/health/neighbour_probe.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/overdue_probe.h"
#include "worker/comm/health/publisher.h"
#include "worker/comm/health/rank_records.h"
#include "worker/comm/health/storeless_watch.h"
#include "worker/comm/health/transfer_probe.h"

namespace ddprun::comm {

// Detects why a group fails, and makes every rank report the same failure. In a loop, the probes collect facts, the
// pure diagnose() decides, and the publisher sets the failure key. The facts come from this rank's operation log, the
// records of the other ranks (their heartbeats), the ends of processes on this host, and the store, which sets the
// failure key itself when the connection of a rank with a last will closes. A store without last wills (PyTorch's own)
// leaves the other facts. A store whose process announced that it ends in order may close: the StorelessWatch goes on.
//
// Ownership: owns its connection to the store and its thread. The operation log outlives it.
// Threads: any thread may call the methods. on_failure is called once, by the monitor's thread.
// Errors: the constructor throws what the store throws, and Errc::mismatch if a rank that joined earlier has another
// configuration. Later errors become the group's failure.
class PeerMonitor {
 public:
  using OnFailure = std::function<void(const Error&)>;

  // Registers this rank before it returns. options: outlive the monitor. backend: as the user named it.
  PeerMonitor(const GroupOptions& options, std::string_view backend, const OperationLog& operation_log,
              OnFailure on_failure);
  // Tells the other ranks that this one leaves, which is not a loss.
  ~PeerMonitor();

  const std::string& identity() const { return publisher_.identity(); }  // "pid 42 on host b"
  // The longest time from a transport's failure to the last will of the rank that caused it.
  static std::chrono::milliseconds last_will_delay() { return OverdueProbe::cause_delay; }
  // The longest time from a missed deadline or a transport's failure to the group's failure.
  std::chrono::milliseconds diagnosis_delay() const;

  // Tells that every rank has joined: from now on their records can be read. linger_timeout: the transport's.
  void all_joined(std::optional<std::chrono::milliseconds> linger_timeout);
  // Tells that the transport of this operation failed with this message: find the cause. Only the first call counts.
  void transport_failed(const OperationLog::Entry& entry, const std::string& message);
  // Ends the group, for this reason. Only the first call counts.
  void publish(const GroupFailure& failure);

 private:
  using Clock = std::chrono::steady_clock;
  // Requests of other threads to the monitor's thread.
  struct Requests {
    bool stop = false;
    bool all_joined = false;
    std::optional<std::chrono::milliseconds> linger_timeout;
    std::optional<GroupFailure> to_publish;
    std::optional<TransportFailure> transport_failure;
  };

  void run();
  std::optional<GroupFailure> watch();
  std::optional<GroupFailure> watch_without_store();
  void watch_group();
  void ask_for_end(Deadline deadline);
  std::vector<int> record_ended();
  Facts collect(const Requests& requests, Clock::time_point now);
  bool is_starved(const Silence& silence) const;
  void begin_observing_peers();
  void find_store_host();
  std::string name_rank(int rank);
  Requests take_requests();
  void wait_for_stop();
  void wait_for(std::chrono::milliseconds time);  // ends early when told to stop

  const std::shared_ptr<Store> store_;
  const GroupOptions& options_;
  const OperationLog& operation_log_;
  const OnFailure on_failure_;
  const std::chrono::milliseconds window_;         // the least time between two readings that shows a missing heartbeat
  const std::chrono::milliseconds pass_interval_;  // the time between two passes over the probes

  // Only the monitor's thread uses these, once it runs.
  RankRecords records_;
  Publisher publisher_;
  NeighbourProbe neighbour_;
  DisagreementProbe disagreement_;
  TransferProbe transfers_;
  OverdueProbe overdue_;
  bool peers_known_ = false;
  StoreHost store_host_;
  std::set<int> ended_;               // ranks of this host whose processes have ended
  bool failure_is_published_ = true;  // the one that watch() has returned, if any
  bool store_ends_ = false;           // true if the store's process ends in order
  PeerRecords left_;                  // the records of ranks that left, with that of the store's host, once it ends

  std::mutex mutex_;
  std::condition_variable changed_;
  Requests requests_;  // guarded by mutex_

  LocalProcesses processes_;  // destroyed before the objects that its callback uses

  std::thread thread_;  // last, as it uses all members above
};

}  // namespace ddprun::comm
