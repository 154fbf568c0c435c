// Nodes that a running round loses and gains while the workers of the others run.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun {

// To be asked before the nodes change: later a member that is gone counts as done.
bool Membership::can_change_members() const {
  return phase_ == Phase::running && recoverable_ && !judgement_due_ && !any_member_done();
}

// The members that are gone are no members any more. Returns false if the round cannot go on without them: the workers'
// store was at one of them, or too few nodes are left. Nodes without a part in the round join it as far as the minimum
// asks for, and then as far as there is room: the workers of the others wait for the former alone.
// REQUIRES: can_change_members(), before
bool Membership::lose_members(const std::string& why) {
  const auto first = nodes_.find(round_.members.front().node_id);
  if (first == nodes_.end() || !first->second.member || !has_min_nodes()) return false;
  change_members(static_cast<std::size_t>(std::max(member_count(), policy_.min_nodes)), why);
  gain_members("a spare node takes part");
  return true;
}

// REQUIRES: can_change_members()
void Membership::gain_members(const std::string& why) {
  if (member_count() < std::min(static_cast<int>(nodes_.size()), policy_.max_nodes))
    change_members(static_cast<std::size_t>(policy_.max_nodes), why);
}

void Membership::change_members(std::size_t most, const std::string& why) {
  const auto ids = select_members(most);
  std::set<std::string> joining;
  for (const auto& id : ids) {
    Node& node = nodes_.at(id);
    if (node.member) continue;
    joining.insert(id);
    node.ready = node.succeeded = node.failed = false;
    node.workers.clear();
  }
  const Round former = std::move(round_);
  round_ = make_round(ids, former.generation);
  round_.master_addr = former.master_addr;
  round_.master_port = former.master_port;
  round_.group_generation = former.group_generation + 1;
  renumber_failures(former, joining);
  RoundChanged change{.round = round_, .newcomers = {}, .reason = why};
  std::vector<std::string> to;
  for (const auto& member : round_.members) {
    if (joining.contains(member.node_id)) change.newcomers.push_back(member.group_rank);
    to.push_back(member.node_id);
  }
  post(std::move(to), std::move(change));
}

// Failures whose replacement is not decided yet are those of nodes that have other ranks now, have gone, or have come
// back and start all of their workers.
void Membership::renumber_failures(const Round& former, const std::set<std::string>& joining) {
  std::vector<WorkerFailure> kept;
  for (auto& failure : failures_) {
    const auto& id = former.members.at(static_cast<std::size_t>(failure.group_rank)).node_id;
    const auto member = std::ranges::find(round_.members, id, &RoundMember::node_id);
    if (member == round_.members.end() || joining.contains(id)) continue;
    failure.group_rank = member->group_rank;
    failure.rank = member->first_rank + failure.local_rank;
    kept.push_back(std::move(failure));
  }
  failures_ = std::move(kept);
  if (failures_.empty()) forget_failures();
}

}  // namespace ddprun
