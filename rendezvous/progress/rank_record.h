#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "ddprun/rendezvous/progress/operation_description.h"

// The record that each rank of a process group publishes in the workers' store, about once a second: the other ranks
// diagnose failures with it, and `ddprun status` shows it. Values and their text; no I/O. The text is read by programs
// of the same version only.
namespace ddprun {

// One operation of a rank, as of the moment of its record.
struct RankOperation {
  enum class State : std::uint8_t { submitted, started, done, failed };

  // Of a collective: its number in the group, from 0. Of a send or receive: its number among those of the same sender,
  // receiver and tag, from 1; 0: unknown.
  std::uint64_t sequence = 0;
  State state = State::submitted;
  std::chrono::milliseconds age{};  // time in this state
  std::uint64_t bytes = 0;
  OperationDescription description;

  bool transfer() const { return description.point_to_point(); }  // a send or receive
  friend bool operator==(const RankOperation&, const RankOperation&) = default;
};
std::string_view name_of(RankOperation::State state);

// How long a rank's collectives of one kind and size have taken, waiting for others included, since its group formed.
// Some of them are timed, the same ones at all ranks of the group.
struct OperationTiming {
  static constexpr std::size_t most = 8;  // of a record

  std::string kind;         // as OperationDescription has it
  std::uint64_t bytes = 0;  // of the buffer, or of one rank's part of it; the mean of some similar sizes
  std::uint64_t count = 0;  // that were timed
  double seconds = 0;       // their sum
  double median = 0;        // seconds

  friend bool operator==(const OperationTiming&, const OperationTiming&) = default;
};

struct RankRecord {
  std::uint64_t beat = 0;      // grows with each publication: a record that stays the same is a missed heartbeat
  std::uint64_t sequence = 0;  // of the collective the rank is in, or else of its next one
  bool inside = false;         // the rank is in that collective
  bool left = false;           // the rank left the group with no operation pending
  int size = 0;                // of the group
  std::int64_t pid = 0;
  std::chrono::milliseconds time{};  // of the record, since the epoch
  std::string host;
  std::string label;  // one line: what the rank is called besides, such as its place in a mesh; empty: nothing
  std::optional<OperationDescription>
      operation;  // the collective it is in, or else its last one; none: none called yet
  std::vector<OperationTiming> timings;
  std::vector<RankOperation> operations;  // recent collectives by sequence, then sends and receives in progress

  std::string identity() const;  // "pid 42 on host b"; with a label "data 1, tensor 1, pid 42 on host b"
  // The sequence number of `operation`.
  std::optional<std::uint64_t> newest() const;
  friend bool operator==(const RankRecord&, const RankRecord&) = default;
};
std::string identity_text(const std::string& label, std::int64_t pid, const std::string& host);
std::string encode(const RankRecord& record);
// Nothing for a text that is not a record, or larger than any record.
std::optional<RankRecord> decode_rank_record(std::string_view text);

// The prefix of the workers' keys of a generation, as PyTorch's workers use it; and what all generations have in
// common.
std::string worker_prefix(std::int64_t generation);
std::string_view worker_prefix();

// The key of a rank's record. prefix: of the group's keys.
struct RankRecordKey {
  std::string prefix;
  int rank = 0;
  friend bool operator==(const RankRecordKey&, const RankRecordKey&) = default;
};
std::string text_of(const RankRecordKey& key);
// nullopt for any other key.
std::optional<RankRecordKey> parse_rank_record_key(std::string_view text);

}  // namespace ddprun
