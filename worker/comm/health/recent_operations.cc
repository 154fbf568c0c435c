#include "ddprun/worker/comm/health/recent_operations.h"

#include <algorithm>
#include <map>
#include <utility>

#include "ddprun/common/dtype.h"
#include "ddprun/worker/comm/process_group.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr std::uint64_t ended_told = 8;  // before the oldest collective in progress: as far as a rank may run ahead
constexpr std::size_t collectives_told = 12;  // those included
constexpr std::size_t transfers_told = 4;     // and compared

RankOperation::State told(OperationLog::State state) {
  switch (state) {
    case OperationLog::State::none:  // of no entry that can be read
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

RankOperation told(const OperationLog::Entry& entry, OperationLog::Clock::time_point now) {
  return {.sequence = entry.sequence,
          .transfer = entry.operation.point_to_point(),
          .state = told(entry.state),
          .age = std::max(milliseconds(0), std::chrono::duration_cast<milliseconds>(now - entry.changed)),
          .bytes = entry.operation.count * size_of(entry.operation.dtype),
          .text = describe(entry.operation)};
}

std::vector<OperationLog::Entry> oldest_few(std::vector<OperationLog::Entry> transfers) {
  std::stable_sort(transfers.begin(), transfers.end(),
                   [](const auto& one, const auto& other) { return one.changed < other.changed; });
  transfers.resize(std::min(transfers.size(), transfers_told));
  return transfers;
}

// With a partner that is named, since that long.
bool waits_for_partner(const OperationLog::Entry& entry, OperationLog::Clock::time_point now, milliseconds since) {
  return entry.operation.point_to_point() && entry.operation.peer != any_source && now - entry.changed >= since;
}

}  // namespace

std::vector<RankOperation> recent_operations(const OperationLog& operation_log, OperationLog::Clock::time_point now) {
  auto oldest = operation_log.sequence();
  std::vector<OperationLog::Entry> transfers;
  operation_log.for_each_in_progress([&](OperationLog::Place, const OperationLog::Entry& entry) {
    if (entry.operation.point_to_point())
      transfers.push_back(entry);
    else
      oldest = std::min(oldest, entry.sequence);
  });
  std::vector<RankOperation> operations;
  for (const auto& entry : operation_log.collectives(oldest - std::min(oldest, ended_told), collectives_told))
    operations.push_back(told(entry, now));
  for (const auto& entry : oldest_few(std::move(transfers))) operations.push_back(told(entry, now));
  return operations;
}

std::vector<OperationLog::Entry> transfers_to_compare(const OperationLog& operation_log,
                                                      OperationLog::Clock::time_point now, milliseconds since) {
  std::vector<OperationLog::Entry> transfers;
  operation_log.for_each_in_progress([&](OperationLog::Place, const OperationLog::Entry& entry) {
    if (entry.sequence != 0 && waits_for_partner(entry, now, since)) transfers.push_back(entry);
  });
  return oldest_few(std::move(transfers));
}

std::vector<OperationLog::Entry> oldest_by_partner(const OperationLog& operation_log,
                                                   OperationLog::Clock::time_point now, milliseconds since) {
  std::map<int, OperationLog::Entry> oldest;
  operation_log.for_each_in_progress([&](OperationLog::Place, const OperationLog::Entry& entry) {
    if (!waits_for_partner(entry, now, since)) return;
    auto& known = oldest.try_emplace(entry.operation.peer, entry).first->second;
    if (entry.changed < known.changed) known = entry;
  });
  std::vector<OperationLog::Entry> transfers;
  for (const auto& [partner, entry] : oldest) transfers.push_back(entry);
  return transfers;
}

}  // namespace ddprun::comm
