#include "worker/comm/health/disagreement_probe.h"

#include "worker/comm/health/recent_operations.h"

namespace ddprun::comm {

// This rank's own call of the watched rank's number is kept for a while.
std::optional<Stall> DisagreementProbe::own_that_differs(Clock::time_point now,
                                                         const std::optional<RankRecord>& watched) const {
  const auto number = watched ? watched->newest() : std::nullopt;
  const auto entry = number ? operation_log_.collective(*number) : std::nullopt;
  if (!entry) return std::nullopt;
  auto own = stall_of(rank_, *entry, now);
  if (agree(*watched->operation, own.operation)) return std::nullopt;
  return own;
}

std::optional<CollectiveCalls> DisagreementProbe::look(Clock::time_point now, const std::optional<RankRecord>& watched,
                                                       const std::string& identity) {
  if (!found_) {
    const auto own = own_that_differs(now, watched);
    if (!own) return std::nullopt;
    found_ = own_call(*own, identity);
    found_at_ = now;
  }
  const auto latest = records_.read_all().records;
  for (int r = 0; r < std::ssize(latest); ++r)
    if (const auto& record = latest[static_cast<std::size_t>(r)]) found_->add(r, *record);
  found_->more_may_follow = now < found_at_ + patience_;
  return found_;
}

}  // namespace ddprun::comm
