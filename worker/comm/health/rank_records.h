#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/store/store.h"
#include "worker/comm/health/diagnosis.h"

namespace ddprun::comm {

// The records of a group's ranks in the store, one key a rank. Used by one thread. All methods throw what the store
// throws.
class RankRecords {
 public:
  using Clock = std::chrono::steady_clock;
  struct Snapshot {
    Clock::time_point at;
    std::vector<std::optional<RankRecord>> records;  // by rank
  };

  // timeout: the limit of each call to the store.
  RankRecords(std::shared_ptr<Store> store, std::string prefix, int size, std::chrono::milliseconds timeout)
      : store_(std::move(store)), prefix_(std::move(prefix)), size_(size), timeout_(timeout) {}

  int size() const { return size_; }
  void publish(int rank, const RankRecord& record);
  // The call by which publish() does that.
  StoreCall publication(int rank, const RankRecord& record) const;
  // Returns none if the rank has not published yet.
  std::optional<RankRecord> read(int rank);
  // Makes one request. Waits, within the timeout, for ranks that have not published yet.
  std::vector<std::optional<RankRecord>> read_some(const std::vector<int>& ranks);
  Snapshot read_all();

 private:
  std::string key(int rank) const { return text_of(RankRecordKey{prefix_, rank}); }
  Deadline deadline() const { return Deadline::in(timeout_); }

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  const int size_;
  const std::chrono::milliseconds timeout_;
};

// Returns the records of two snapshots side by side, by rank.
std::vector<Observation> observe(const RankRecords::Snapshot& before, const RankRecords::Snapshot& now);

}  // namespace ddprun::comm
