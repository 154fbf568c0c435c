// A round, from the time that nodes are awaited for it to its start.
#include <algorithm>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/exit_code.h"
#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/node_commands.h"
#include "rendezvous/membership/rank_assignment.h"
#include "rendezvous/membership/worker_names.h"

namespace ddprun {

// The current round has lost a member or gained one.
void MembershipState::change_round(Time now, const std::string& why, Pending failures) {
  if (!has_min_nodes() && !policy_.may_be_replaced()) return end_by_loss(why, failures);
  forget_failures();
  if (has_min_nodes())
    propose(now, why);
  else
    start_forming(now, why);
}

void MembershipState::start_forming(Time now, const std::string& why) {
  phase_ = Phase::forming;
  phase_since_ = now;
  recoverable_ = false;
  got_state_.clear();
  ready_deadline_.reset();
  last_call_.reset();
  form_deadline_ = now + policy_.join_timeout;
  last_change_ = why;
  for (auto& [id, node] : nodes_) node.member = false;
  announce(all_nodes());
}

void MembershipState::continue_forming(Time now) {
  if (!has_min_nodes()) return;
  const bool full = static_cast<int>(nodes_.size()) >= policy_.max_nodes;
  if (full || policy_.last_call.count() <= 0) return propose(now, last_change_.empty() ? "first round" : last_change_);
  if (!last_call_) last_call_ = now + policy_.last_call;
}

void MembershipState::check_forming(Time now) {
  if (phase_ != Phase::forming || awaited_) return;
  if (last_call_ && now >= *last_call_) return propose(now, last_change_.empty() ? "first round" : last_change_);
  if (last_call_ || !form_deadline_ || now < *form_deadline_) return;
  const std::string cause = last_change_.empty() ? "" : fmt::format("{}, and ", last_change_);
  end({.exit_code = exit_fault,
       .reason = fmt::format("{}after {} only {} of {} are here ({})", cause, duration_text(policy_.join_timeout),
                             nodes_.size(), count_text(policy_.min_nodes, "node"), missing_text())});
}

void MembershipState::propose(Time now, const std::string& why) {
  const std::vector<std::string> ids = select_members(static_cast<std::size_t>(policy_.max_nodes));
  for (auto& [id, node] : nodes_) {
    node.member = node.ready = node.succeeded = node.failed = node.wants_standby = false;
    node.store_port = 0;
  }
  round_ = make_round(ids, next_generation_++);
  phase_ = Phase::proposed;
  phase_since_ = now;
  preempted_ = recoverable_ = false;
  got_state_.clear();
  form_deadline_.reset();
  last_call_.reset();
  forget_failures();
  last_change_.clear();
  ready_deadline_ = now + policy_.join_timeout;
  worker_store_port_ = 0;
  std::vector<std::string> to;
  for (const auto& member : round_.members) to.push_back(member.node_id);
  post(std::move(to), RoundProposed{round_, why});
}

// Selects at most so many nodes: members of the round, then spares that stand by for it, then members of later before
// those of earlier rounds, as far as this server or the nodes know, then in order of arrival. The first of several
// nodes that had a rank keeps it.
std::vector<std::string> MembershipState::select_members(std::size_t most) const {
  std::vector<const Nodes::value_type*> order;
  for (const auto& entry : nodes_) order.push_back(&entry);
  const auto place = [has_round = phase_ != Phase::forming](const Node& node) {
    return std::make_tuple(!node.member, !(has_round && node.stands_by), -node.rank_of, node.arrival);
  };
  std::sort(order.begin(), order.end(),
            [&](const auto* a, const auto* b) { return place(a->second) < place(b->second); });
  order.resize(std::min(order.size(), most));
  std::vector<std::string> ids;
  for (const auto* entry : order) ids.push_back(entry->first);
  return ids;
}

Round MembershipState::make_round(const std::vector<std::string>& ids, std::int64_t generation) {
  std::vector<RankCandidate> candidates;
  std::vector<AddressCandidate> sessions;
  for (const auto& id : ids) {
    const Node& node = nodes_.at(id);
    candidates.push_back({.host = node.info.host,
                          .arrival = node.arrival,
                          .previous_rank = policy_.fixed_ranks ? std::nullopt : node.rank,
                          .requested_rank = node.info.node_rank});
    sessions.push_back({node.info.address, node.addresses});
  }
  const std::vector<int> ranks = assign_group_ranks(candidates);
  const std::vector<std::string> addresses = dialable_addresses(sessions);

  Round round{.generation = generation, .restarts_used = restarts_used_};
  round.members.resize(ids.size());
  for (std::size_t i = 0; i < ids.size(); ++i) {
    Node& node = nodes_.at(ids[i]);
    node.member = true;
    node.standby_asked = node.stands_by = false;  // it starts workers
    node.rank = ranks[i];
    node.rank_of = round.generation;
    round.members[static_cast<std::size_t>(ranks[i])] = {.node_id = ids[i],
                                                         .host = node.info.host,
                                                         .address = addresses[i],
                                                         .port = node.info.port,
                                                         .group_rank = ranks[i],
                                                         .nproc = node.info.nproc};
  }
  std::vector<std::vector<std::string>> commands;
  for (auto& member : round.members) {
    member.first_rank = round.world_size;
    round.world_size += member.nproc;
    commands.push_back(nodes_.at(member.node_id).info.command);
  }
  round.commands = find_command_difference(commands);
  return round;
}

// A node that sends heartbeats but never becomes ready blocks all others.
void MembershipState::check_ready(Time now) {
  if (phase_ != Phase::proposed || !ready_deadline_ || now < *ready_deadline_) return;
  std::vector<std::string> stuck;
  for (const auto& [id, node] : nodes_)
    if (node.member && !node.ready) stuck.push_back(id);
  const std::string first = nodes_.at(stuck.front()).info.host;
  const std::string what =
      fmt::format("not ready for generation {} after {}", round_.generation, duration_text(policy_.join_timeout));
  post(stuck, NodeDropped{.text = fmt::format("this node counts as lost: {}", what), .may_return = false});
  remove(now, stuck, fmt::format("node {} was lost: {}", first, what), Pending::consequence);
}

void MembershipState::start_round(Time now) {
  phase_ = Phase::running;
  phase_since_ = now;
  for (auto& [id, node] : nodes_) node.workers.clear();
  for (auto& member : round_.members) name_workers(member, round_.group_generation);
  ready_deadline_.reset();
  round_.master_addr = round_.members.front().address;
  round_.master_port = worker_store_port_;
  std::vector<std::string> to;
  for (const auto& member : round_.members) to.push_back(member.node_id);
  post(std::move(to), RoundStarted{round_});
}

}  // namespace ddprun
