#include "worker/comm/health/overdue_probe.h"

#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {

std::optional<OverdueOperation> OverdueProbe::look(Clock::time_point now,
                                                   const std::optional<TransportFailure>& failure) {
  const auto entry = failure ? failure->entry : nearest_deadline(now);
  if (!entry) {
    baseline_.reset();
    return std::nullopt;
  }
  OverdueOperation overdue{.own = stall_of(rank_, *entry, now)};
  if (failure) {
    overdue.own.transport_error = failure->message;
    overdue.cause_may_follow = now < failure->at + cause_delay;
    overdue.calls_may_follow = now < failure->at + window_;
  }
  try {
    if (!baseline_) baseline_ = records_.read_all();
    if (!failure && now < entry->deadline()) return std::nullopt;
    observe_latest(overdue);
  } catch (const Error& error) {
    if (error.code() != Errc::timeout) throw;
    overdue.store_error = error.what();
  }
  return overdue;
}

void OverdueProbe::observe_latest(OverdueOperation& overdue) {
  const auto latest = records_.read_all();
  overdue.observations = observe(*baseline_, latest);
  overdue.seconds_between = std::chrono::duration<double>(latest.at - baseline_->at).count();
  overdue.observed_long_enough = latest.at - baseline_->at >= window_;
}

// Returns the nearest of the operations whose deadline is less than a window away, or past.
std::optional<OperationLog::Entry> OverdueProbe::nearest_deadline(Clock::time_point now) const {
  std::optional<OperationLog::Entry> nearest;
  operation_log_.for_each_in_progress([&](OperationLog::Slot, const OperationLog::Entry& entry) {
    if (now < entry.deadline() - window_) return;
    if (!nearest || entry.deadline() < nearest->deadline()) nearest = entry;
  });
  return nearest;
}

}  // namespace ddprun::comm
