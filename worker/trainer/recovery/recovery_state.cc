#include "worker/trainer/recovery/recovery_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ddprun::trainer {

using Request = RecoveryState::Request;

Request RecoveryState::on_failure(const std::string& reason) {
  if (reason_.empty()) reason_ = reason;
  copying_.reset();  // if this rank receives the state, own_ has been none since the copy began
  return AwaitPlan{generation_};
}

Request RecoveryState::on_change() {
  changes_ = true;
  return on_failure("the members of the process group change");
}

Request RecoveryState::on_plan(const MembershipPlan& plan) {
  generation_ = plan.generation;
  if (plan.members.empty()) return on_no_plan();
  const auto found = std::ranges::find(plan.members, self_);
  if (found == plan.members.end() && changes_) return Leave{};
  if (found == plan.members.end())
    return GiveUp{
        fmt::format("process {} is not a member of generation {}: it was given up for dead", self_, plan.generation)};
  rank_ = static_cast<int>(found - plan.members.begin());
  return FormGroup{plan};
}

Request RecoveryState::on_no_plan() const {
  return GiveUp{reason_};
}

Request RecoveryState::on_positions(std::span<const Position> positions) {
  auto catchup = compare_positions(positions);
  if (!catchup) return GiveUp{"no living rank has the state of the run; " + reason_};
  if (catchup->lagging.empty()) return train(catchup->step);
  copying_ = catchup->step;
  const bool receives = std::ranges::count(catchup->lagging, rank_) > 0;
  if (receives) own_.reset();
  return CopyState{std::move(*catchup), receives};
}

Request RecoveryState::on_copied() {
  return train(*std::exchange(copying_, std::nullopt));
}

Request RecoveryState::train(std::int64_t step) {
  own_ = step;
  changes_ = false;
  reason_.clear();
  return Train{step};
}

}  // namespace ddprun::trainer
