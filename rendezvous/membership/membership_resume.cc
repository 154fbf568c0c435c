// A round of an earlier server whose workers still run: whether it goes on at this server.
#include <algorithm>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/worker_names.h"

namespace ddprun {

// A round of a higher generation has left behind those below it. A server that has formed a round itself has none to
// wait for.
void MembershipState::await_round(Time now, const FormerRound& former) {
  if (former.nodes < policy_.min_nodes || former.nodes > policy_.max_nodes || !round_.members.empty()) return;
  if (!awaited_ || former.generation > awaited_->round.generation)
    awaited_ = {.round = former, .until = now + policy_.heartbeat_timeout()};
}

// Returns whether the node's workers run in the awaited round.
bool MembershipState::is_back(const Node& node) const {
  const auto& former = node.info.former;
  return awaited_ && former && former->nodes == awaited_->round.nodes &&
         former->generation == awaited_->round.generation && former->first == awaited_->round.first;
}

int MembershipState::nodes_back() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) { return is_back(entry.second); }));
}

// Nodes with other generations of the workers' process group have not all got the last change of the round, and those
// with other restarts not the last replacements. A node that reports a later round has ended this one.
bool MembershipState::can_resume() const {
  if (next_generation_ != awaited_->round.generation + 1 || nodes_back() != awaited_->round.nodes) return false;
  std::set<int> ranks;
  for (const auto& [id, node] : nodes_) {
    if (!is_back(node)) continue;
    const auto& former = *node.info.former;
    if (former.restarts_used != restarts_used_ || former.group_generation != awaited_->round.group_generation ||
        (former.group_rank == 0) != (id == former.first))
      return false;
    ranks.insert(former.group_rank);
  }
  return static_cast<int>(ranks.size()) == awaited_->round.nodes;
}

void MembershipState::resume_or_wait(Time now) {
  if (!can_resume()) return;
  const bool room = awaited_->round.nodes < policy_.max_nodes;
  const auto other =
      std::find_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) { return !is_back(entry.second); });
  if (!room || other == nodes_.end()) return resume_round(now);
  awaited_.reset();
  propose(now, fmt::format("node {} joined", other->second.info.host));
}

void MembershipState::resume_round(Time now) {
  std::vector<std::string> ids;
  for (auto& [id, node] : nodes_) {
    if (!is_back(node)) continue;
    node.rank = node.info.former->group_rank;
    ids.push_back(id);
  }
  const FormerRound former = std::move(awaited_->round);
  awaited_.reset();
  begin_resumed(now, ids, former);
}

void MembershipState::begin_resumed(Time now, const std::vector<std::string>& ids, const FormerRound& former) {
  round_ = make_round(ids, former.generation);
  for (auto& member : round_.members) {
    Node& node = nodes_.at(member.node_id);
    member.workers = node.info.former->workers;
    if (static_cast<int>(member.workers.size()) != member.nproc) name_workers(member, 0);
    node.store_port = node.info.former->store_port;
  }
  round_.group_generation = former.group_generation;
  round_.master_addr = former.master_addr;
  round_.master_port = former.master_port;
  phase_ = Phase::running;
  phase_since_ = now;
  form_deadline_.reset();
  last_call_.reset();
  last_change_.clear();
  std::vector<std::string> to;
  for (const auto& member : round_.members) to.push_back(member.node_id);
  post(std::move(to), RoundResumed{round_.generation});
}

MembershipMessages Membership::continue_round(Time now, const std::string& why) {
  gathering_ = false;
  last_change_ = why;
  const auto kept = nodes_of_kept_round();
  if (!kept.empty())
    resume_without_lost(now, kept, why);
  else if (has_min_nodes())
    propose(now, why);
  else
    announce(all_nodes());
  return take_messages();
}

// Returns the nodes whose workers still run in the former server's last round, if it can go on with them alone: the
// workers' store is at one of them, or can be. Workers that are done do not form another group with the others.
std::vector<std::string> MembershipState::nodes_of_kept_round() const {
  std::vector<std::string> ids;
  const FormerRound* round = nullptr;
  for (const auto& [id, node] : nodes_) {
    const auto& former = node.info.former;
    if (!former || former->nodes == 0) continue;
    if (!round) round = &*former;
    if (former->generation != round->generation || former->first != round->first ||
        former->group_generation != round->group_generation || former->restarts_used != restarts_used_ ||
        (former->group_rank == 0) != (id == round->first))
      return {};
    ids.push_back(id);
  }
  const bool has_store = std::ranges::any_of(
      ids, [&](const auto& id) { return id == round->first || nodes_.at(id).info.former->store_port != 0; });
  const auto count = static_cast<int>(ids.size());
  const bool goes_on = has_store && next_generation_ == round->generation + 1 && count >= policy_.min_nodes &&
                       (count == round->nodes || none_done(ids));
  return goes_on ? ids : std::vector<std::string>();
}

bool MembershipState::none_done(const std::vector<std::string>& ids) const {
  return std::ranges::none_of(ids, [&](const auto& id) { return nodes_.at(id).info.former->done; });
}

void MembershipState::resume_without_lost(Time now, std::vector<std::string> ids, const std::string& why) {
  for (const auto& id : ids) nodes_.at(id).rank = nodes_.at(id).info.former->group_rank;
  std::ranges::sort(ids, {}, [&](const auto& id) { return *nodes_.at(id).rank; });
  const FormerRound former = *nodes_.at(ids.front()).info.former;
  const auto first = std::ranges::find_if(
      ids, [&](const auto& id) { return id == former.first || nodes_.at(id).info.former->store_port != 0; });
  lead_with(std::string(*first), ids);
  begin_resumed(now, ids, former);
  recoverable_ = true;  // otherwise no node would have kept it
  if (former.nodes > static_cast<int>(ids.size())) {
    if (ids.front() != former.first) {
      round_.master_addr = round_.members.front().address;
      round_.master_port = nodes_.at(ids.front()).store_port;
    }
    ++round_.group_generation;
    std::vector<std::string> to;
    for (const auto& member : round_.members) to.push_back(member.node_id);
    post(std::move(to), RoundChanged{.round = round_, .newcomers = {}, .in_order = false, .reason = why});
  }
  if (none_done(ids)) gain_members("a node takes part again");
}

// The leases of the nodes that have not come back have ended: each began before this server did.
void MembershipState::check_awaited(Time now) {
  if (!awaited_ || now < awaited_->until) return;
  const int nodes = awaited_->round.nodes;
  const auto why = nodes_back() < nodes ? fmt::format("{} of its {} came back", nodes_back(), count_text(nodes, "node"))
                                        : "its nodes came back in different states";
  last_change_ = fmt::format("the rendezvous server was restarted, and generation {} does not go on: {}",
                             awaited_->round.generation, why);
  awaited_.reset();
  continue_forming(now);
}

}  // namespace ddprun
