#include "worker/recovery/recovery_state.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace ddprun {

using Request = RecoveryState::Request;

Request RecoveryState::on_failure(const std::string& reason) {
  if (reason_.empty()) reason_ = reason;
  return AwaitPlan{generation_};
}

Request RecoveryState::on_change() {
  changes_ = true;
  return on_failure("the members of the process group change");
}

Request RecoveryState::on_plan(const MembershipPlan& plan) {
  generation_ = plan.generation;
  if (plan.is_left_by(self_)) return Leave{};
  if (plan.members.empty()) return on_no_plan();
  const auto found = std::ranges::find(plan.members, self_);
  if (found == plan.members.end() && changes_) return Leave{};
  if (found == plan.members.end())
    return GiveUp{
        fmt::format("process {} is not a member of generation {}: it was given up for dead", self_, plan.generation)};
  const auto ranks = static_cast<int>(plan.members.size());
  if (layout_ && !layout_->fits(ranks)) {
    ranks_that_do_not_fit_ = ranks;
    return AwaitPlan{.newer_than = generation_, .lacks_members = true};
  }
  ranks_that_do_not_fit_.reset();
  rank_ = static_cast<int>(found - plan.members.begin());
  return FormGroup{plan};
}

Request RecoveryState::on_no_plan() const {
  if (!ranks_that_do_not_fit_) return GiveUp{reason_};
  return GiveUp{fmt::format("{} rank{} not fit the layout of [parallel], and no others have joined; {}",
                            *ranks_that_do_not_fit_, *ranks_that_do_not_fit_ == 1 ? " does" : "s do", reason_)};
}

Request RecoveryState::on_positions(std::span<const Holdings> processes) {
  auto catchup = compare_positions(processes);
  if (layout_) return restore(std::move(catchup), processes);
  if (!catchup) return GiveUp{"all ranks that had the state of the training are lost"};
  if (catchup->lagging.empty()) return train(catchup->step);
  const bool receives = std::ranges::count(catchup->lagging, rank_) > 0;
  if (receives) own_ = {};  // until it is copied
  return CopyState{std::move(*catchup), receives};
}

// The parts that ranks hold stay as they are, and so does own_.
Request RecoveryState::restore(std::optional<Catchup> catchup, std::span<const Holdings> processes) {
  if (!catchup) {
    catchup = {.from = StateSource::checkpoint};
    for (const Holdings& each : processes) catchup->reached = std::max(catchup->reached, each.reached);
  }
  const bool receives = catchup->from == StateSource::checkpoint || std::ranges::count(catchup->lagging, rank_) > 0;
  return CopyState{std::move(*catchup), receives};
}

Request RecoveryState::on_copied(std::int64_t step) {
  return train(step);
}

Request RecoveryState::train(std::int64_t step) {
  if (!layout_) own_ = whole_state(step);
  changes_ = false;
  reason_.clear();
  return Train{step};
}

}  // namespace ddprun
