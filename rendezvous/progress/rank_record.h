#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

// What each rank of a process group publishes of itself in the workers' store, about once a second: for the other
// ranks, who explain failures by it, and for whoever looks at the job from outside. Values and their text, nothing
// else.
namespace ddprun {

// One operation, as its rank saw it at the moment of the record.
struct RankOperation {
  enum class State : std::uint8_t { submitted, started, done, failed };

  // Of a collective; of a send or receive, among those of its sender, receiver and tag, from 1 on; 0: unknown.
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
  std::uint64_t beat = 0;       // grows with each publication: a record that stands still is of a rank that does
  std::uint64_t sequence = 0;   // of the collective it is in, or, outside, of the next one
  bool inside = false;          // it is in that collective
  bool left = false;            // it ended its group in good order
  std::uint16_t signature = 0;  // of the collective it is in; outside, of the last one
  int size = 0;                 // of the group
  std::int64_t pid = 0;
  std::chrono::milliseconds time{};  // of the publication, since the epoch
  std::string host;
  std::string operation;                  // that collective in words
  std::vector<RankOperation> operations;  // around it: collectives in their order, then sends and receives

  std::string identity() const;  // "pid 42 on host b"
  // The number of that collective; none: it has not called anything yet.
  std::optional<std::uint64_t> newest() const;
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};
std::string encode(const RankRecord& record);
// Nothing for text that is no record.
std::optional<RankRecord> decode_rank_record(std::string_view text);

// Of what the workers of a generation keep in their store, as PyTorch's do; and of what those of any do.
std::string worker_prefix(std::int64_t generation);
std::string_view worker_prefix();

// Where the record of a rank lies; prefix is that of the group's keys.
struct RankRecordKey {
  std::string prefix;
  int rank = 0;
  friend bool operator==(const RankRecordKey&, const RankRecordKey&) = default;
};
std::string text_of(const RankRecordKey& key);
// Nothing for any other key.
std::optional<RankRecordKey> parse_rank_record_key(std::string_view text);

}  // namespace ddprun
