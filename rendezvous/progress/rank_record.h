#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// The progress that each rank of a process group publishes in the workers' store about once a second: other ranks use
// it to diagnose failures, ddprun status shows it. Values and their encoding; no I/O.
namespace ddprun {

// One operation at the time of the record.
struct RankOperation {
  enum class State : std::uint8_t { submitted, started, done, failed };

  // Of a collective; of a send or receive among those with its sender, receiver and tag, from 1; 0: unknown.
  std::uint64_t sequence = 0;
  bool transfer = false;  // a send or receive
  State state = State::submitted;
  std::chrono::milliseconds age{};  // in this state
  std::uint64_t bytes = 0;
  std::string text;  // "allreduce(sum) of 100 float32"

  friend bool operator==(const RankOperation&, const RankOperation&) = default;
};
std::string_view name_of(RankOperation::State state);

struct RankRecord {
  std::uint64_t beat = 0;       // increases with each record; if it stops, the rank is frozen
  std::uint64_t sequence = 0;   // of the collective in progress; otherwise of the next one
  bool inside = false;          // a collective is in progress
  bool left = false;            // the rank destroyed its group without an error
  std::uint16_t signature = 0;  // of the collective in progress; otherwise of the last one
  int size = 0;                 // of the group
  std::int64_t pid = 0;
  std::chrono::milliseconds time{};  // of the record, since the epoch
  std::string host;
  std::string operation;                  // text of that collective
  std::vector<RankOperation> operations;  // recent ones: collectives in order, then sends and receives

  std::string identity() const;  // "pid 42 on host b"
  // The sequence number of that collective; nullopt if the rank has called none.
  std::optional<std::uint64_t> newest() const;
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};
std::string encode(const RankRecord& record);
// nullopt if text is not a record.
std::optional<RankRecord> decode_rank_record(std::string_view text);

// The prefix of the workers' keys of a generation, as PyTorch's workers use it; and what all generations have in
// common.
std::string worker_prefix(std::int64_t generation);
std::string_view worker_prefix();

// The key of a rank's record; prefix is that of the group's keys.
struct RankRecordKey {
  std::string prefix;
  int rank = 0;
  friend bool operator==(const RankRecordKey&, const RankRecordKey&) = default;
};
std::string text_of(const RankRecordKey& key);
// nullopt for any other key.
std::optional<RankRecordKey> parse_rank_record_key(std::string_view text);

}  // namespace ddprun
