#include "worker/comm/health/storeless_watch.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {
namespace {

using std::chrono::milliseconds;

constexpr const char* why_unknown = "the process that served the group's store has left, so that nobody says why";

}  // namespace

void StorelessWatch::ended(int rank, std::string name, Clock::time_point now) {
  if (!left_.contains(rank)) ended_.try_emplace(rank, End{std::move(name), now});
}

std::optional<GroupFailure> StorelessWatch::look(Clock::time_point now,
                                                 const std::optional<TransportFailure>& failure) const {
  if (failure) return diagnose_transport(*failure, now);
  std::optional<GroupFailure> found;
  operation_log_.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (!found) found = diagnose_operation(entry, now);
  });
  return found;
}

std::optional<GroupFailure> StorelessWatch::diagnose_operation(const OperationLog::Entry& entry,
                                                               Clock::time_point now) const {
  auto stall = stall_of(rank_, entry, now);
  const auto known_for = std::chrono::duration_cast<milliseconds>(now - std::max(began_, entry.changed));
  const Facts departures{.rank = rank_,
                         .size = size_,
                         .departures = {{.own = stall, .left = left_, .known_for = known_for}},
                         .linger_timeout = linger_timeout_};
  if (auto failure = diagnose(departures)) return failure;
  if (entry.changed + end_grace <= now)
    if (auto failure = diagnose_ends(stall, now - end_grace)) return failure;
  if (now < entry.deadline()) return std::nullopt;
  return GroupFailure{Errc::timeout, fmt::format("{} did not complete within {:.1f} s: {} (as seen by rank {})",
                                                 name_operation(stall), stall.seconds, why_unknown, rank_)};
}

// The end of a process that caused it may show a moment later.
std::optional<GroupFailure> StorelessWatch::diagnose_transport(const TransportFailure& failure,
                                                               Clock::time_point now) const {
  auto stall = stall_of(rank_, failure.entry, now);
  if (auto ends = diagnose_ends(stall, now)) return ends;
  if (now < failure.at + OverdueProbe::cause_delay) return std::nullopt;
  return GroupFailure{Errc::connection_lost, fmt::format("{} failed: {}; {} (as seen by rank {})",
                                                         name_operation(stall), failure.message, why_unknown, rank_)};
}

std::optional<GroupFailure> StorelessWatch::diagnose_ends(const Stall& stall, Clock::time_point since) const {
  GroupFailure failure{Errc::peer_lost, ""};
  for (const auto& [rank, end] : ended_) {
    if (!stall.concerns(rank) || end.noticed > since) continue;
    if (!failure.message.empty()) failure.message += "; ";
    failure.message += fmt::format("{} ended while {} was in progress", end.name, name_operation(stall));
    failure.lost.push_back(rank);
  }
  if (failure.lost.empty()) return std::nullopt;
  return failure;
}

}  // namespace ddprun::comm
