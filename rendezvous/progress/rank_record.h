#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/progress/operation_description.h"

// The record that each rank of a process group publishes in the workers' store, about once a second: the other ranks
// diagnose failures with it, and `ddprun status` shows it. Values and their text; no I/O. The text is read by programs
// of the same version only.
namespace ddprun {

// One operation of a rank, at the time of its record.
struct RankOperation {
  enum class State : std::uint8_t { submitted, started, done, failed };

  // For a collective, its number in the group, from 0. For a send or receive, its number among those of the same
  // sender, receiver and tag, from 1; 0 if unknown.
  std::uint64_t sequence = 0;
  State state = State::submitted;
  std::chrono::milliseconds age{};  // time in this state
  std::uint64_t bytes = 0;
  OperationDescription description;

  bool transfer() const { return description.point_to_point(); }  // a send or receive
  friend bool operator==(const RankOperation&, const RankOperation&) = default;
};
std::string_view name_of(RankOperation::State state);

// The time that a rank's collectives of one kind and size have taken since its group formed, waiting for others
// included. Only some of them are timed, the same ones at all ranks of the group.
struct OperationTiming {
  static constexpr std::size_t most = 8;  // entries of a record

  std::string kind;         // as OperationDescription has it
  std::uint64_t bytes = 0;  // size of the buffer, or of one rank's part of it; the mean of some similar sizes
  std::uint64_t count = 0;  // the number of timed ones
  double seconds = 0;       // their sum
  double median = 0;        // seconds

  friend bool operator==(const OperationTiming&, const OperationTiming&) = default;
};

struct RankRecord {
  std::uint64_t beat = 0;      // grows with each publication: a record that stays the same is a missed heartbeat
  std::uint64_t sequence = 0;  // number of the collective the rank is in, or else of its next one
  bool inside = false;         // the rank is in that collective
  bool left = false;           // the rank left the group with no operation pending
  int size = 0;                // size of the group
  std::int64_t pid = 0;
  std::chrono::milliseconds time{};  // when the record was made, since the epoch
  std::string host;
  std::string label;  // one line: a further name of the rank, such as its place in a mesh; empty if it has none
  std::optional<OperationDescription>
      operation;  // the collective it is in, or else its last one; nullopt before the first
  std::vector<OperationTiming> timings;
  std::vector<RankOperation> operations;  // recent collectives by sequence, then sends and receives in progress

  std::string identity() const;  // "pid 42 on host b"; with a label "data 1, tensor 1, pid 42 on host b"
  // The sequence number of `operation`.
  std::optional<std::uint64_t> newest() const;
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};
std::string identity_text(const std::string& label, std::int64_t pid, const std::string& host);
std::string encode(const RankRecord& record);
// Returns nullopt for a text that is not a record, or is larger than any record.
std::optional<RankRecord> decode_rank_record(std::string_view text);

// The prefix of the workers' keys of a generation, as PyTorch's workers use it; without an argument, the part that the
// prefixes of all generations have in common.
std::string worker_prefix(std::int64_t generation);
std::string_view worker_prefix();

// The key of a rank's record; prefix is that of the group's keys.
struct RankRecordKey {
  std::string prefix;
  int rank = 0;
  friend bool operator==(const RankRecordKey&, const RankRecordKey&) = default;
};
std::string text_of(const RankRecordKey& key);
// Returns nullopt for any other key.
std::optional<RankRecordKey> parse_rank_record_key(std::string_view text);

}  // namespace ddprun
