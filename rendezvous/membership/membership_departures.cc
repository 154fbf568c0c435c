// Nodes that leave or are lost, and what that means for their round.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {
namespace {

// Bounds the memory for nodes that join under ever new ids.
constexpr std::size_t max_former_ranks = 65536;

}  // namespace

MembershipMessages Membership::leave(Time now, const std::string& id, const std::string& reason) {
  liveness_clock_.advance(now);
  away_.erase(id);
  if (nodes_.contains(id))
    remove(now, {id}, fmt::format("node {} left: {}", nodes_.at(id).info.host, reason), Pending::cause,
           Departure::left);
  return take_messages();
}

MembershipMessages Membership::leave_asked(Time now, const std::string& id, const std::string& reason) {
  record_activity(now, id);
  if (auto refusal = leave_refusal(id); !refusal.empty()) {
    post({id}, LeaveAnswered{.refusal = std::move(refusal)});
    return take_messages();
  }
  Node& node = nodes_.at(id);
  node.leaves_when_asked = true;
  away_.insert(id);
  remove(now, {id}, fmt::format("node {} left: {}", node.info.host, reason), Pending::cause, Departure::asked);
  auto messages = take_messages();
  messages.insert(messages.begin(), {{id}, LeaveAnswered{.refusal = {}, .round_goes_on = phase_ == Phase::running}});
  return messages;
}

MembershipMessages Membership::session_closed(Time now, const std::string& id, const std::string& how) {
  liveness_clock_.advance(now);
  away_.erase(id);
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return {};
  const auto ranks = ranks_text(round_, node->second.member ? node->second.rank : std::nullopt);
  // A lease ends long after its node failed, so failures reported before are a consequence of it.
  const Pending failures = options_.leased ? Pending::consequence : Pending::cause;
  remove(now, {id}, fmt::format("node {} was lost: {}{}", node->second.info.host, how, ranks), failures);
  return take_messages();
}

// Returns why the node may not leave when it asks for it; empty if it may.
std::string MembershipState::leave_refusal(const std::string& id) const {
  const auto node = nodes_.find(id);
  if (phase_ != Phase::running || node == nodes_.end() || !node->second.member) return "it is in no round that runs";
  if (any_member_done() || judgement_due_ || !asking_.empty()) return "its round is about to change";
  if (static_cast<int>(nodes_.size()) <= policy_.min_nodes)
    return fmt::format("the job of --nnodes={} has {}", nnodes_text(policy_),
                       count_text(static_cast<int>(nodes_.size()), "node"));
  if (any_member_suspect()) return "a node has missed a heartbeat and may be lost";
  if (recoverable_ && !is_state_kept_without(id)) return "no other node has the state of the training yet";
  return {};
}

// Returns whether the others need a new round: they do not if the node's workers have all succeeded.
bool MembershipState::record_departure(Time now, const Node& node) {
  const bool needs_round = node.member && !(phase_ == Phase::running && node.succeeded);
  flapping_hosts_.left(now, node.info.host, node.joined, needs_round && !node.leaves_when_asked);
  return needs_round;
}

// Removes nodes as one change: the loss of a rack leads to one new round, not to one per node.
// A node that leaves without having asked stops its workers by a signal, which may ask all ranks to save their state
// and stop.
void MembershipState::remove(Time now, const std::vector<std::string>& gone, const std::string& why, Pending failures,
                             Departure departure) {
  const bool goes_on = can_change_members() && departure != Departure::left;
  bool changes_round = false;
  for (const auto& id : gone) {
    const Node& node = nodes_.at(id);
    changes_round |= record_departure(now, node);
    if (node.rank && former_ranks_.size() < max_former_ranks) former_ranks_[id] = *node.rank;
    nodes_.erase(id);
  }
  if (phase_ == Phase::forming) {
    if (!last_change_.empty()) last_change_ = why;
    if (!has_min_nodes()) last_call_.reset();
  } else if (phase_ != Phase::ended && changes_round) {
    if (!goes_on || !lose_members(why, departure)) change_round(now, why, failures);
  } else if (phase_ == Phase::running) {
    if (!nodes_.contains(round_.members.front().node_id))
      refuse_replacement(now, std::exchange(asking_, {}), "the node that serves the workers' store has left");
    finish_if_all_succeeded();
  }
  ask_spares();
}

}  // namespace ddprun
