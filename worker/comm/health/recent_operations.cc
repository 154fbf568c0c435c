#include "worker/comm/health/recent_operations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "common/dtype.h"
#include "worker/comm/process_group.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t most_ended = 8;       // ended before the oldest in progress: as far as a rank may run ahead
constexpr std::size_t most_collectives = 12;  // including the ended ones
constexpr std::size_t most_transfers = 4;

RankOperation::State published(OperationLog::State state) {
  switch (state) {
    case OperationLog::State::none:  // never the state of a readable entry
    case OperationLog::State::submitted:
      return RankOperation::State::submitted;
    case OperationLog::State::started:
      return RankOperation::State::started;
    case OperationLog::State::done:
      return RankOperation::State::done;
    case OperationLog::State::failed:
      return RankOperation::State::failed;
  }
  return RankOperation::State::submitted;
}

RankOperation published(const OperationLog::Entry& entry, OperationLog::Clock::time_point now) {
  return {.sequence = entry.sequence,
          .state = published(entry.state),
          .age = std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(now - entry.changed)),
          .bytes = entry.operation.count * size_of(entry.operation.dtype),
          .description = description_of(entry.operation)};
}

std::vector<OperationLog::Entry> oldest_few(std::vector<OperationLog::Entry> transfers) {
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const auto& one, const auto& other) { return one.changed < other.changed; });
  transfers.resize(std::min(transfers.size(), most_transfers));
  return transfers;
}

// Returns whether an operation with a known partner has been in progress for that long.
bool waits_for_partner(const OperationLog::Entry& entry, OperationLog::Clock::time_point now, milliseconds since) {
  return entry.operation.point_to_point() && entry.operation.peer != any_source && now - entry.changed >= since;
}

}  // namespace

std::vector<RankOperation> recent_operations(const OperationLog& operation_log, OperationLog::Clock::time_point now) {
  auto oldest = operation_log.sequence();
  std::vector<OperationLog::Entry> transfers;
  operation_log.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (entry.operation.point_to_point())
      transfers.push_back(entry);
    else
      oldest = std::min(oldest, entry.sequence);
  });
  std::vector<RankOperation> operations;
  for (const auto& entry : operation_log.collectives(oldest - std::min(oldest, most_ended), most_collectives))
    operations.push_back(published(entry, now));
  for (const auto& entry : oldest_few(std::move(transfers))) operations.push_back(published(entry, now));
  return operations;
}

std::vector<OperationLog::Entry> transfers_to_compare(const OperationLog& operation_log,
                                                      OperationLog::Clock::time_point now, milliseconds since) {
  std::vector<OperationLog::Entry> transfers;
  operation_log.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (entry.sequence != 0 && waits_for_partner(entry, now, since)) transfers.push_back(entry);
  });
  return oldest_few(std::move(transfers));
}

std::vector<OperationLog::Entry> oldest_by_partner(const OperationLog& operation_log,
                                                   OperationLog::Clock::time_point now, milliseconds since) {
  std::map<int, OperationLog::Entry> oldest;
  operation_log.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (!waits_for_partner(entry, now, since)) return;
    auto& known = oldest.try_emplace(entry.operation.peer, entry).first->second;
    if (entry.changed < known.changed) known = entry;
  });
  std::vector<OperationLog::Entry> transfers;
  for (const auto& [partner, entry] : oldest) transfers.push_back(entry);
  return transfers;
}

std::optional<OperationLog::Entry> receive_from_any(const OperationLog& operation_log) {
  std::optional<OperationLog::Entry> receive;
  operation_log.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (entry.operation.kind == OpKind::recv && entry.operation.peer == any_source) receive = entry;
  });
  return receive;
}

Stall stall_of(int rank, const OperationLog::Entry& entry, OperationLog::Clock::time_point now) {
  return {.rank = rank,
          .sequence = entry.sequence,
          .operation = description_of(entry.operation),
          .seconds = std::chrono::duration<double>(now - entry.changed).count()};
}

}  // namespace ddprun::comm
