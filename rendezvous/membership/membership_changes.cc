// Nodes that a running round loses and gains while the workers of the others run.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/worker_names.h"
#include "rendezvous/recovery/recovery_keys.h"

namespace ddprun {

// To be asked before the nodes change: later a member that is gone counts as done.
bool MembershipState::can_change_members() const {
  return phase_ == Phase::running && recoverable_ && !judgement_due_ && !any_member_done();
}

// Workers that join later get the state from the others, and have it once they say so or report their training.
bool MembershipState::has_state(const RoundMember& member) const {
  const auto node = nodes_.find(member.node_id);
  if (node == nodes_.end() || !node->second.member) return false;
  const auto& reported = node->second.workers;
  for (std::size_t i = 0; i < member.workers.size(); ++i)
    if (!joins_later(member.workers[i]) || got_state_.contains(member.workers[i]) ||
        (i < reported.size() && reported[i].now.training))
      return true;
  return false;
}

// Returns whether a member other than this one has the state of the training.
bool MembershipState::is_state_kept_without(const std::string& id) const {
  return std::ranges::any_of(round_.members,
                             [&](const auto& member) { return member.node_id != id && has_state(member); });
}

// The members that are gone are no members any more. Returns false if the round cannot go on without them: no other has
// the state or can serve the workers' store, or too few nodes are left. Nodes without a part in the round join it as
// far as the minimum asks for, and then as far as there is room: the workers of the others wait for the former alone.
// REQUIRES: can_change_members(), before
bool MembershipState::lose_members(const std::string& why, Departure departure) {
  const auto host = store_host();
  // Where ranks are fixed, group rank 0 stays at its node, whose new workers' store knows nothing.
  const bool loses_store = host.empty() || (policy_.fixed_ranks && host != round_.members.front().node_id);
  if (loses_store || !has_min_nodes() || !is_state_kept_without("")) return false;
  change_members(static_cast<std::size_t>(std::max(member_count(), policy_.min_nodes)), why, departure);
  gain_members("a spare node takes part");
  return true;
}

// REQUIRES: can_change_members()
void MembershipState::gain_members(const std::string& why) {
  if (member_count() < std::min(static_cast<int>(nodes_.size()), policy_.max_nodes))
    change_members(static_cast<std::size_t>(policy_.max_nodes), why, Departure::asked);
}

bool MembershipState::can_serve_store(const std::string& id) const {
  const auto node = nodes_.find(id);
  return node != nodes_.end() && node->second.member && node->second.store_port != 0;
}

// Returns the member at which the workers' store is from now on: where it was, if that node stays; empty: at none.
std::string MembershipState::store_host() const {
  const auto& first = round_.members.front().node_id;
  if (const auto node = nodes_.find(first); node != nodes_.end() && node->second.member) return first;
  const auto next = std::ranges::find_if(round_.members, [&](const auto& one) { return can_serve_store(one.node_id); });
  return next == round_.members.end() ? "" : next->node_id;
}

// The node gets group rank 0 in the round of these nodes.
void MembershipState::lead_with(const std::string& first, std::vector<std::string>& ids) {
  nodes_.at(first).rank = 0;
  std::ranges::stable_partition(ids, [&](const auto& id) { return id == first; });
}

// Where group rank 0 is another node than before, it serves another store. Returns whether it does.
bool MembershipState::place_store(const Round& former) {
  const auto& first = round_.members.front();
  const bool moves = first.node_id != former.members.front().node_id;
  round_.master_addr = moves ? first.address : former.master_addr;
  round_.master_port = moves ? nodes_.at(first.node_id).store_port : former.master_port;
  return moves;
}

void MembershipState::change_members(std::size_t most, const std::string& why, Departure departure) {
  auto ids = select_members(most);
  lead_with(store_host(), ids);
  std::set<std::string> joining;
  for (const auto& id : ids) {
    Node& node = nodes_.at(id);
    if (node.member) continue;
    joining.insert(id);
    node.ready = node.succeeded = node.failed = node.wants_standby = false;
    node.workers.clear();
  }
  const Round former = std::move(round_);
  round_ = make_round(ids, former.generation);
  round_.group_generation = former.group_generation + 1;
  renumber_failures(former, joining);
  keep_names(round_, former, joining);
  const bool moves = place_store(former);
  RoundChanged change{.round = round_, .newcomers = {}, .in_order = departure == Departure::asked, .reason = why};
  std::vector<std::string> to;
  for (const auto& member : round_.members) {
    if (joining.contains(member.node_id)) change.newcomers.push_back(member.group_rank);
    to.push_back(member.node_id);
  }
  post(std::move(to), std::move(change));
  if (moves && !asking_.empty()) post({round_.members.front().node_id}, RecoveryAsked{round_.generation});
}

// Failures whose replacement is not decided yet are those of nodes that have other ranks now, have gone, or have come
// back and start all of their workers.
void MembershipState::renumber_failures(const Round& former, const std::set<std::string>& joining) {
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
