#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "ddprun/rendezvous/store/store.h"
#include "ddprun/worker/comm/health/diagnosis.h"

namespace ddprun::comm {

// The records of a group's ranks in the store, one key a rank.
class RankRecords {
 public:
  using Clock = std::chrono::steady_clock;
  struct Reading {
    Clock::time_point at;
    std::vector<std::optional<RankRecord>> records;  // by rank
  };

  // patience: of each call, for the store's answer.
  RankRecords(std::shared_ptr<Store> store, std::string prefix, int size, std::chrono::milliseconds patience)
      : store_(std::move(store)), prefix_(std::move(prefix)), size_(size), patience_(patience) {}

  int size() const { return size_; }
  void publish(int rank, const RankRecord& record);
  // None: it has not published yet. Later it always has.
  std::optional<RankRecord> read(int rank);
  // These wait, within the patience, for ranks that have not published yet. One request, however many they are.
  std::vector<std::optional<RankRecord>> read_some(const std::vector<int>& ranks);
  Reading read_all();

 private:
  std::string key(int rank) const { return text_of(RankRecordKey{prefix_, rank}); }
  Deadline deadline() const { return Deadline::in(patience_); }

  const std::shared_ptr<Store> store_;
  const std::string prefix_;
  const int size_;
  const std::chrono::milliseconds patience_;
};

// What changed from one reading to a later one, by rank.
std::vector<Observation> observe(const RankRecords::Reading& before, const RankRecords::Reading& now);

}  // namespace ddprun::comm
