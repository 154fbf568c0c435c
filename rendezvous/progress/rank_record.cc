#include "ddprun/rendezvous/progress/rank_record.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <utility>

#include <fmt/format.h>

namespace ddprun {
namespace {

using std::chrono::milliseconds;

constexpr std::string_view version = "2";  // of the text; the first line
constexpr std::string_view key_word = "record/";
constexpr std::array<std::string_view, 4> state_names = {"submitted", "started", "done", "failed"};

template <class T>
std::optional<T> number_in(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

// Reads a text field by field. good() is false once a number is missing or invalid.
class Fields {
 public:
  explicit Fields(std::string_view text) : rest_(text) {}

  std::string_view next(char end = '\n') {
    const auto size = std::min(rest_.find(end), rest_.size());
    const auto field = rest_.substr(0, size);
    rest_.remove_prefix(std::min(size + 1, rest_.size()));
    return field;
  }
  template <class T>
  T number(char end = '\n') {
    const auto value = number_in<T>(next(end));
    good_ = good_ && value.has_value();
    return value.value_or(T{});
  }
  bool flag(char end = '\n') { return number<int>(end) != 0; }

  bool at_end() const { return rest_.empty(); }
  bool good() const { return good_; }

 private:
  std::string_view rest_;
  bool good_ = true;
};

std::string encode(const RankOperation& operation) {
  return fmt::format("{} {} {} {} {} {}\n", operation.sequence, operation.transfer ? 1 : 0,
                     static_cast<int>(operation.state), operation.age.count(), operation.bytes, operation.text);
}

std::optional<RankOperation> decode_operation(std::string_view line) {
  Fields fields(line);
  RankOperation operation{.sequence = fields.number<std::uint64_t>(' '), .transfer = fields.flag(' ')};
  const auto state = fields.number<unsigned>(' ');
  operation.age = milliseconds(fields.number<milliseconds::rep>(' '));
  operation.bytes = fields.number<std::uint64_t>(' ');
  operation.text = fields.next();
  if (!fields.good() || state >= state_names.size()) return std::nullopt;
  operation.state = static_cast<RankOperation::State>(state);
  return operation;
}

}  // namespace

std::string_view name_of(RankOperation::State state) {
  return state_names.at(static_cast<std::size_t>(state));
}

std::string RankRecord::identity() const {
  return fmt::format("pid {} on host {}", pid, host);
}

std::optional<std::uint64_t> RankRecord::newest() const {
  if (operation.empty()) return std::nullopt;
  return inside ? sequence : sequence - 1;
}

std::string encode(const RankRecord& record) {
  auto text = fmt::format("{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n{}\n", version, record.beat, record.sequence,
                          record.inside ? 1 : 0, record.left ? 1 : 0, record.signature, record.size, record.pid,
                          record.time.count(), record.host, record.operation);
  for (const auto& operation : record.operations) text += encode(operation);
  return text;
}

std::optional<RankRecord> decode_rank_record(std::string_view text) {
  Fields fields(text);
  if (fields.next() != version) return std::nullopt;
  RankRecord record{.beat = fields.number<std::uint64_t>(),
                    .sequence = fields.number<std::uint64_t>(),
                    .inside = fields.flag(),
                    .left = fields.flag(),
                    .signature = fields.number<std::uint16_t>(),
                    .size = fields.number<int>(),
                    .pid = fields.number<std::int64_t>(),
                    .time = milliseconds(fields.number<milliseconds::rep>()),
                    .host = std::string(fields.next()),
                    .operation = std::string(fields.next())};
  while (!fields.at_end()) {
    auto operation = decode_operation(fields.next());
    if (!operation) return std::nullopt;
    record.operations.push_back(std::move(*operation));
  }
  if (!fields.good()) return std::nullopt;
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
