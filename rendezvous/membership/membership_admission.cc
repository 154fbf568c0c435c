// Nodes that join: whether they may, and the rank that they are known by.
#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "rendezvous/membership/membership.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/node_commands.h"

namespace ddprun {

MembershipMessages Membership::join(Time now, const NodeInfo& info, const JobPolicy& policy,
                                    const SessionAddresses& addresses) {
  liveness_clock_.advance(now);
  if (nodes_.empty()) last_tick_ = phase_since_ = now;
  if (auto text = refusal(info, policy)) {
    post({info.id}, JoinRefused{std::move(*text)});
    return take_messages();
  }
  if (flapping_hosts_.is_blocked(now, info.host)) return reject_flapping(now, info);
  if (!nodes_.contains(info.id) && is_full() && !policy_.may_be_replaced()) {
    post({info.id}, NodeDropped{.text = full_text(), .may_return = false});
    return take_messages();
  }
  const auto before = nodes_.find(info.id);
  const bool was_member = before != nodes_.end() && before->second.member;
  const bool goes_on = can_change_members();
  if (info.former) resume_after(*info.former);
  admit(now, info, addresses);

  if (phase_ == Phase::forming) {
    if (!form_deadline_) form_deadline_ = now + policy_.join_timeout;
    if (gathering_) return take_messages();
    if (info.former) await_round(now, *info.former);
    awaited_ ? resume_or_wait(now) : continue_forming(now);
  } else if (was_member) {
    const auto why = fmt::format("node {} opened a new session", info.host);
    nodes_.at(info.id).member = !goes_on;  // it has no workers now, as one that has just come
    if (!goes_on || !lose_members(why, Departure::lost)) {
      nodes_.at(info.id).member = true;
      change_round(now, why);
    }
  } else if (member_count() < policy_.max_nodes && !any_member_done() && !judgement_due_) {
    const auto why = fmt::format("node {} joined", info.host);
    goes_on ? gain_members(why) : propose(now, why);
  }
  if (!nodes_.at(info.id).member) {
    nodes_.at(info.id).arrival_event = ++liveness_event_;
    if (info.former && info.former->nodes > 0 && !is_back(nodes_.at(info.id)))
      post({info.id}, ReplacementRefused{info.former->generation});
    report_command(info);
    announce({info.id});
  }
  ask_spares();
  return take_messages();
}

// A spare is in no round, whose members learn from it that commands differ.
void MembershipState::report_command(const NodeInfo& info) {
  if (phase_ != Phase::running) return;
  const auto first = nodes_.find(round_.members.front().node_id);
  if (first == nodes_.end() || first->second.info.command.empty() || info.command.empty()) return;
  const auto difference = describe_command_difference(info.command, first->second.info.command);
  if (difference.empty()) return;
  post({info.id}, RendezvousWaiting{fmt::format("this node would run another command than node 0 (host {}): {}",
                                                first->second.info.host, difference)});
}

MembershipMessages MembershipState::reject_flapping(Time now, const NodeInfo& info) {
  post({info.id}, NodeDropped{.text = flapping_text(info.host), .may_return = false});
  if (nodes_.contains(info.id))
    remove(now, {info.id}, fmt::format("node {} was refused: it joined and left too often", info.host), Pending::cause);
  return take_messages();
}

// A node that rejoins keeps its rank and membership, so that it is selected first for the next round.
void MembershipState::admit(Time now, const NodeInfo& info, const SessionAddresses& addresses) {
  if (policy_host_.empty()) policy_host_ = info.host;
  if (const auto before = nodes_.find(info.id); before != nodes_.end()) record_departure(now, before->second);
  away_.erase(info.id);
  flapping_hosts_.joined(info.host);
  Node& node = nodes_[info.id];
  const std::optional<int> rank = node.rank;
  const std::int64_t rank_of = node.rank_of;
  const bool member = node.member;
  node = {.info = info,
          .addresses = addresses,
          .arrival = arrivals_++,
          .joined = now,
          .last_heard = liveness_clock_.elapsed()};
  node.member = member;
  node.rank = rank;
  node.rank_of = info.former ? std::max(rank_of, generation_here(*info.former)) : rank_of;
  if (rank) return;
  if (const auto old = former_ranks_.find(info.id); old != former_ranks_.end())
    node.rank = old->second;
  else if (info.former)
    node.rank = info.former->group_rank;
}

// A round at an earlier server counts as one before those of this server, whatever its generation: a node that stayed
// keeps its rank.
std::int64_t MembershipState::generation_here(const FormerRound& former) const {
  return round_.members.empty() ? former.generation : std::min(former.generation, round_.generation - 1);
}

void MembershipState::resume_after(const FormerRound& former) {
  next_generation_ = std::max(next_generation_, former.generation + 1);
  restarts_used_ = std::max(restarts_used_, std::min(former.restarts_used, policy_.max_restarts));
  if (phase_ == Phase::forming && last_change_.empty()) last_change_ = "the rendezvous server was restarted";
}

std::optional<std::string> MembershipState::refusal(const NodeInfo& info, const JobPolicy& policy) const {
  if (phase_ == Phase::ended) return fmt::format("the job of run id '{}' has just ended; try again", policy_.run_id);
  if (const auto difference = policy_difference(policy_, policy))
    return fmt::format(
        "run id '{}' is in use by a job that host {} started: node {} asks for {}; "
        "use the same options on every node, or another --rdzv_id for another job",
        policy_.run_id, policy_host_, info.host, *difference);
  if (info.nproc < 1) return fmt::format("node {} has {} workers; at least 1 is required", info.host, info.nproc);
  if (!policy_.fixed_ranks) return std::nullopt;
  const int rank = info.node_rank.value_or(-1);
  if (rank < 0 || rank >= policy_.max_nodes)
    return fmt::format("node {} has node rank {}; a job of --nnodes={} has ranks 0 to {}", info.host, rank,
                       nnodes_text(policy_), policy_.max_nodes - 1);
  for (const auto& [id, node] : nodes_)
    if (id != info.id && node.info.node_rank == rank)
      return fmt::format(
          "node rank {} of run id '{}' is taken by host {}: "
          "node {} needs another --node_rank, or another --rdzv_id if it is another job",
          rank, policy_.run_id, node.info.host, info.host);
  return std::nullopt;
}

}  // namespace ddprun
