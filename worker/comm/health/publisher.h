#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "common/deadline.h"
#include "rendezvous/progress/rank_record.h"
#include "rendezvous/store/store.h"
#include "worker/comm/bootstrap/group_config.h"
#include "worker/comm/group_options.h"
#include "worker/comm/health/group_failure.h"
#include "worker/comm/health/operation_log.h"
#include "worker/comm/health/rank_records.h"

namespace ddprun::comm {

// Writes to the store what concerns this rank and its group: its record as a heartbeat, its last will, and the group's
// failure. One thread at a time. Methods throw what the store throws.
class Publisher {
 public:
  using Clock = std::chrono::steady_clock;

  // records, operation_log, options: outlive the publisher.
  Publisher(std::shared_ptr<Store> store, RankRecords& records, const GroupOptions& options,
            const OperationLog& operation_log);

  const std::string& identity() const { return identity_; }  // "pid 42 on host b"

  // Registers this rank, and leaves a last will (as in MQTT): should its connection to the store close, the store
  // itself sets the failure key. Throws Errc::mismatch, and fails the group, if the first rank to join has another
  // configuration. backend: as the user named it. registration: LocalProcesses::registration().
  void join(std::string_view backend, const std::string& registration);
  // Publishes this rank's record.
  void beat(bool left = false);
  Clock::time_point next_beat() const { return next_beat_; }
  // Returns a record under this rank's own key that this process did not write.
  std::optional<RankRecord> find_duplicate();

  // Makes this the group's failure unless another one was set before. Returns the one that counts.
  GroupFailure publish(const GroupFailure& failure);
  // Returns the group's failure, as soon as it is set; none at the deadline, or when woken by Store::wake().
  std::optional<GroupFailure> await_failure(Deadline deadline);
  // Tells the others that this rank leaves with no operation pending, and removes its last will.
  void leave(Deadline deadline);

  // Returns the registrations of this host's ranks (local_processes.h). REQUIRES join().
  std::string local_registrations();
  // Returns a rank on the store's host, if one has joined.
  std::optional<int> rank_beside_store();

 private:
  void renew_record(bool left);
  void compare_config(const ConfigClaim& own, const std::string& first);
  RankRecord current_record(bool left) const;
  Deadline store_deadline() const { return Deadline::in(store_timeout_of(options_)); }

  const std::shared_ptr<Store> store_;
  RankRecords& records_;
  const GroupOptions& options_;
  const OperationLog& operation_log_;
  const std::string identity_;
  const std::string failure_key_, processes_key_, beside_store_key_;
  RankRecord last_;
  Clock::time_point next_beat_;
};

}  // namespace ddprun::comm
