#include "launcher/control/group_text.h"

#include <algorithm>
#include <array>

#include <boost/json/serialize.hpp>
#include <boost/json/value.hpp>
#include <fmt/format.h>

#include "common/printable.h"
#include "launcher/control/group_diagnosis.h"

namespace ddprun {
namespace {

namespace json = boost::json;
using Age = RankProgress::Age;

constexpr std::size_t columns = 8;
using TableRow = std::array<std::string, columns + 1>;  // the last one is a remark

constexpr Age report_delay(std::chrono::seconds(3));  // a longer delay gets a remark: records are written every second

std::string seconds_text(Age age) {
  return fmt::format("{:.1f} s", static_cast<double>(age.count()) / 1000);
}

std::string remark_on(const RankProgress& rank) {
  if (rank.record->left) return "has left";
  const auto old =
      rank.report_age >= report_delay ? fmt::format("last report {} ago", seconds_text(rank.report_age)) : "";
  return rank.process + (old.empty() || rank.process.empty() ? "" : ", ") + old;
}

// The newest collective that has ended.
const RankOperation* last_ended(const RankRecord& record) {
  const RankOperation* last = nullptr;
  for (const auto& operation : record.operations)
    if (!operation.transfer() && operation.state >= RankOperation::State::done) last = &operation;
  return last;
}

std::string done_text(const RankOperation* last) {
  if (!last) return "-";
  return fmt::format("#{}{}", last->sequence, last->state == RankOperation::State::failed ? " failed" : "");
}

// The row of a rank between operations, with the time since the last one ended.
TableRow outside_row(TableRow row, const RankProgress& rank, const RankOperation* last) {
  row[4] = row[5] = "-";
  row[6] = "outside";
  row[7] = last ? seconds_text(rank.since(*last)) : "-";
  return row;
}

TableRow operation_row(TableRow row, const RankProgress& rank, const RankOperation& operation) {
  row[4] = operation.transfer() ? describe(operation.description)
                                : fmt::format("#{} {}", operation.sequence, describe(operation.description));
  row[5] = fmt::format("{}", operation.bytes);
  row[6] = name_of(operation.state);
  row[7] = seconds_text(rank.since(operation));
  return row;
}

std::vector<TableRow> rows_of(std::size_t number, const RankProgress& rank) {
  const auto name = fmt::format("{}", number);
  if (!rank.record) return {{name, "-", "-", "-", "-", "-", "absent", "-", "has not joined the group"}};
  const auto& record = *rank.record;
  const auto* last = last_ended(record);
  const TableRow start{name, record.host,    fmt::format("{}", record.pid), done_text(last), "", "", "",
                       "",   remark_on(rank)};
  std::vector<TableRow> rows;
  for (const auto& operation : record.operations)
    if (operation.state == RankOperation::State::started) rows.push_back(operation_row(start, rank, operation));
  if (rows.empty()) rows.push_back(outside_row(start, rank, last));
  return rows;
}

std::string table(const std::vector<TableRow>& rows) {
  std::array<std::size_t, columns> widths{};
  for (const auto& row : rows)
    for (std::size_t i = 0; i < columns; ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const auto& row : rows) {
    std::string line = " ";
    for (std::size_t i = 0; i < columns; ++i) line += fmt::format(" {:<{}} ", row[i], widths[i]);
    line += " " + row.back();
    text += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
  }
  return text;
}

json::object to_object(const RankProgress& rank, const RankOperation& operation) {
  json::object object;
  const bool unknown = operation.transfer() && operation.sequence == 0;
  if (!unknown) object["sequence"] = operation.sequence;
  object["transfer"] = operation.transfer();
  object["operation"] = describe(operation.description);
  object["bytes"] = operation.bytes;
  object["state"] = name_of(operation.state);
  object["since_ms"] = rank.since(operation).count();
  return object;
}

json::object to_object(std::size_t number, const RankProgress& rank) {
  json::object object{{"rank", number}, {"present", rank.record.has_value()}};
  if (!rank.record) return object;
  json::array operations;
  for (const auto& operation : rank.record->operations) operations.push_back(to_object(rank, operation));
  object["host"] = rank.record->host;
  object["pid"] = rank.record->pid;
  object["sequence"] = rank.record->sequence;
  object["inside"] = rank.record->inside;
  object["left"] = rank.record->left;
  object["heard_ms"] = rank.report_age.count();
  object["process"] = rank.process;
  object["operations"] = std::move(operations);
  return object;
}

}  // namespace

std::string group_text(const GroupProgress& group) {
  std::vector<TableRow> rows{{"rank", "host", "pid", "done", "operation", "bytes", "state", "for", ""}};
  for (std::size_t number = 0; number < group.ranks.size(); ++number)
    for (auto& row : rows_of(number, group.ranks[number])) rows.push_back(std::move(row));
  return fmt::format("{}: {}\n{}", group.name, diagnose(group), table(rows));
}

std::string no_groups_text() {
  return "no worker reports a process group: none has formed one yet, or they are PyTorch's, which report nothing\n";
}

std::string groups_json(const JobStatus& job, const std::vector<GroupProgress>& groups) {
  json::array array;
  for (const auto& group : groups) {
    json::array ranks;
    for (std::size_t number = 0; number < group.ranks.size(); ++number)
      ranks.push_back(to_object(number, group.ranks[number]));
    array.push_back(json::object{{"name", group.name}, {"diagnosis", diagnose(group)}, {"ranks", std::move(ranks)}});
  }
  return valid_json(json::serialize(json::object{
      {"run_id", job.run_id}, {"generation", job.generation}, {"store", job.store}, {"groups", std::move(array)}}));
}

}  // namespace ddprun
