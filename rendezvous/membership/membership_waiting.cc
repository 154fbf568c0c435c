// Nodes without a part in a round: what they are told, and which of them a full job drops.
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {

// Sends the waiting text to the nodes that have not got it yet.
void MembershipState::announce(const std::vector<std::string>& ids) {
  std::string text = waiting_text();
  if (text != announced_) {
    announced_ = text;
    ++announcement_;
  }
  std::vector<std::string> to;
  for (const auto& id : ids)
    if (std::exchange(nodes_.at(id).announcement_seen, announcement_) != announcement_) to.push_back(id);
  post(std::move(to), RendezvousWaiting{std::move(text)});
}

// Drops the nodes that a full job does not need: none of its members is lost.
void MembershipState::check_surplus(Time now) {
  if (!any_surplus()) return;
  auto ids = surplus();
  std::erase_if(ids, [&](const auto& id) { return !all_members_heard_since(nodes_.at(id).arrival_event); });
  for (const auto& id : ids) record_departure(now, nodes_.at(id));
  drop_surplus(ids);
}

void MembershipState::drop_surplus(const std::vector<std::string>& ids) {
  post(ids, NodeDropped{.text = full_text(), .may_return = false});
  for (const auto& id : ids) nodes_.erase(id);
}

bool MembershipState::any_surplus() const {
  return is_full() && member_count() == policy_.max_nodes && static_cast<int>(nodes_.size()) > policy_.max_nodes;
}

std::vector<std::string> MembershipState::surplus() const {
  std::vector<std::string> ids;
  for (const auto& [id, node] : nodes_)
    if (!node.member) ids.push_back(id);
  return ids;
}

std::string MembershipState::waiting_text() const {
  const auto here = static_cast<int>(nodes_.size());
  if (is_full())
    return fmt::format("run id '{}' has its {}; this node joins if one of them has been lost, and ends otherwise",
                       policy_.run_id, count_text(member_count(), "node"));
  if (phase_ != Phase::forming)
    return fmt::format("run id '{}' has its {}; this node is a spare and joins when one of them leaves", policy_.run_id,
                       count_text(member_count(), "node"));
  if (awaited_)
    return fmt::format("{} of {} of generation {} are back, whose workers still run; waiting up to {} for all",
                       nodes_back(), count_text(awaited_->round.nodes, "node"), awaited_->round.generation,
                       duration_text(policy_.heartbeat_timeout()));
  if (has_min_nodes())
    return fmt::format("{} of --nnodes={} are here; waiting up to {} for more", here, nnodes_text(policy_),
                       duration_text(policy_.last_call));
  const std::string why = last_change_.empty() ? "" : fmt::format("{}; ", last_change_);
  return fmt::format("{}{} of {} are here ({}); waiting up to {}", why, here, count_text(policy_.min_nodes, "node"),
                     missing_text(), duration_text(policy_.join_timeout));
}

std::string MembershipState::missing_text() const {
  std::string missing;
  for (int rank = 0; policy_.fixed_ranks && rank < policy_.max_nodes && missing.size() < 200; ++rank) {
    const bool here = std::any_of(nodes_.begin(), nodes_.end(),
                                  [&](const auto& entry) { return entry.second.info.node_rank == rank; });
    if (!here) missing += fmt::format("{}{}", missing.empty() ? "missing: node rank " : ", ", rank);
  }
  if (!missing.empty()) return missing;
  std::string hosts;
  for (const auto& [id, node] : nodes_)
    if (hosts.size() < 200) hosts += (hosts.empty() ? "" : ", ") + node.info.host;
  return fmt::format("here: {}; missing: {}", hosts.empty() ? "none" : hosts,
                     count_text(policy_.min_nodes - static_cast<int>(nodes_.size()), "node"));
}

std::string MembershipState::full_text() const {
  std::string hosts;
  for (const auto& member : round_.members)
    if (hosts.size() < 200) hosts += (hosts.empty() ? "" : ", ") + member.host;
  return fmt::format(
      "run id '{}' is in use by a job that has its {} (on {}); this node would run nothing: use another --rdzv_id for "
      "another job, or --nnodes=MIN:MAX for a job with spare nodes",
      policy_.run_id, count_text(static_cast<int>(round_.members.size()), "node"), hosts);
}

std::string MembershipState::flapping_text(const std::string& host) const {
  return fmt::format(
      "host {} has left run id '{}' {} times in a row, each within {} of joining; it may join again after it has "
      "stayed away for {}",
      host, policy_.run_id, flapping_hosts_.short_stays(host), duration_text(options_.flapping.short_stay),
      duration_text(options_.flapping.quiet_period));
}

}  // namespace ddprun
