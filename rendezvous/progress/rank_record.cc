#include "rendezvous/progress/rank_record.h"

#include <array>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/progress/fields.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view version = "5";  // the version of the text; its first line
constexpr std::string_view key_word = "record/";
constexpr std::size_t largest_record = 64 * 1024;
constexpr std::size_t most_operations = 64;
constexpr milliseconds longest_age = std::chrono::hours(24 * 3650);
constexpr std::array<std::string_view, 4> state_names = {"submitted", "started", "done", "failed"};

std::string encode(const RankOperation& operation) {
  return fmt::format("{} {} {} {} {}\n", operation.sequence, static_cast<int>(operation.state), operation.age.count(),
                     operation.bytes, encode(operation.description));
}

std::optional<RankOperation> decode_operation(std::string_view line) {
  Fields fields(line);
  RankOperation operation{.sequence = fields.number<std::uint64_t>(' ')};
  const auto state = fields.number<unsigned>(' ');
  operation.age = milliseconds(fields.number<milliseconds::rep>(' '));
  operation.bytes = fields.number<std::uint64_t>(' ');
  auto description = decode_operation_description(fields.rest());
  if (!fields.good() || state >= state_names.size() || !description) return std::nullopt;
  if (operation.age.count() < 0 || operation.age > longest_age) return std::nullopt;
  operation.state = static_cast<RankOperation::State>(state);
  operation.description = std::move(*description);
  return operation;
}

std::string encode(const OperationTiming& timing) {
  return fmt::format("{} {} {} {:.6g} {:.6g}\n", timing.kind, timing.bytes, timing.count, timing.seconds,
                     timing.median);
}

std::optional<OperationTiming> decode_timing(std::string_view line) {
  Fields fields(line);
  OperationTiming timing{.kind = std::string(fields.next(' ')),
                         .bytes = fields.number<std::uint64_t>(' '),
                         .count = fields.number<std::uint64_t>(' '),
                         .seconds = fields.number<double>(' '),
                         .median = fields.number<double>('\n')};
  const auto is_time = [](double seconds) { return std::isfinite(seconds) && seconds >= 0; };
  if (!fields.good() || !fields.at_end() || timing.kind.empty() || timing.count == 0) return std::nullopt;
  if (!is_time(timing.seconds) || !is_time(timing.median)) return std::nullopt;
  return timing;
}

// Parses the number of timings, and each of them. Returns false if they are malformed.
bool decode_timings(Fields& fields, std::vector<OperationTiming>& timings) {
  const auto count = fields.number<std::size_t>('\n');
  if (count > OperationTiming::most) return false;
  for (std::size_t i = 0; i < count; ++i) {
    auto timing = decode_timing(fields.next('\n'));
    if (!timing) return false;
    timings.push_back(std::move(*timing));
  }
  return true;
}

// A rank that is in a collective, or past its first one, names one. Readers subtract from times and ages.
bool consistent(const RankRecord& record) {
  if (record.time.count() < 0) return false;
  return record.operation ? record.inside || record.sequence > 0 : !record.inside && record.sequence == 0;
}

}  // namespace

std::string_view name_of(RankOperation::State state) {
  return state_names.at(static_cast<std::size_t>(state));
}

std::string RankRecord::identity() const {
  return identity_text(label, pid, host);
}

std::string identity_text(const std::string& label, std::int64_t pid, const std::string& host) {
  return fmt::format("{}{}pid {} on host {}", label, label.empty() ? "" : ", ", pid, host);
}

std::optional<std::uint64_t> RankRecord::newest() const {
  if (!operation) return std::nullopt;
  return inside ? sequence : sequence - 1;
}

std::string encode(const RankRecord& record) {
  auto text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", version, record.beat, record.sequence,
                          record.inside ? 1 : 0, record.left ? 1 : 0, record.size, record.pid, record.time.count(),
                          record.host, record.label, record.operation ? encode(*record.operation) : "");
  text += fmt::format("{}\n", record.timings.size());
  for (const auto& timing : record.timings) text += encode(timing);
  for (const auto& operation : record.operations) text += encode(operation);
  return text;
}

std::optional<RankRecord> decode_rank_record(std::string_view text) {
  if (text.size() > largest_record) return std::nullopt;
  Fields fields(text);
  if (fields.next('\n') != version) return std::nullopt;
  RankRecord record{.beat = fields.number<std::uint64_t>('\n'),
                    .sequence = fields.number<std::uint64_t>('\n'),
                    .inside = fields.flag('\n'),
                    .left = fields.flag('\n'),
                    .size = fields.number<int>('\n'),
                    .pid = fields.number<std::int64_t>('\n'),
                    .time = milliseconds(fields.number<milliseconds::rep>('\n')),
                    .host = std::string(fields.next('\n')),
                    .label = std::string(fields.next('\n'))};
  if (const auto line = fields.next('\n'); !line.empty()) {
    record.operation = decode_operation_description(line);
    if (!record.operation) return std::nullopt;
  }
  if (!decode_timings(fields, record.timings)) return std::nullopt;
  while (!fields.at_end()) {
    auto operation = decode_operation(fields.next('\n'));
    if (!operation || record.operations.size() == most_operations) return std::nullopt;
    record.operations.push_back(std::move(*operation));
  }
  if (!fields.good() || !consistent(record)) return std::nullopt;
  return record;
}

std::string_view worker_prefix() {
  return "/worker/attempt_";
}

std::string worker_prefix(std::int64_t generation) {
  return fmt::format("{}{}", worker_prefix(), generation);
}

std::string text_of(const RankRecordKey& key) {
  return fmt::format("{}{}{}", key.prefix, key_word, key.rank);
}

std::optional<RankRecordKey> parse_rank_record_key(std::string_view text) {
  const auto slash = text.rfind('/');
  if (slash == std::string_view::npos) return std::nullopt;
  const auto before = text.substr(0, slash + 1);
  const auto rank = number_in<int>(text.substr(slash + 1));
  if (!before.ends_with(key_word) || !rank || *rank < 0) return std::nullopt;
  return RankRecordKey{std::string(before.substr(0, before.size() - key_word.size())), *rank};
}

}  // namespace ddprun
