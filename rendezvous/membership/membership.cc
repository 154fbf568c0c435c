#include "rendezvous/membership/membership.h"

#include <algorithm>
#include <csignal>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "common/exit_code.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/node_commands.h"
#include "rendezvous/membership/rank_assignment.h"
#include "rendezvous/membership/worker_names.h"

namespace ddprun {
namespace {

// Bounds the memory for nodes that join under ever new ids.
constexpr std::size_t max_former_ranks = 65536;

// " (rank 3)" or " (ranks 2-3)" for a member of the round; empty otherwise.
std::string ranks_in(const Round& round, std::optional<int> group_rank) {
  if (!group_rank || *group_rank >= static_cast<int>(round.members.size())) return "";
  const RoundMember& member = round.members[static_cast<std::size_t>(*group_rank)];
  if (member.nproc == 1) return fmt::format(" (rank {})", member.first_rank);
  return fmt::format(" (ranks {}-{})", member.first_rank, member.first_rank + member.nproc - 1);
}

}  // namespace

Membership::Membership(JobPolicy policy, MembershipOptions options)
    : policy_(std::move(policy)),
      options_(options),
      flapping_hosts_(options.flapping),
      liveness_clock_(policy_.keep_alive_interval / 2) {}

// ---- events

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
    if (!goes_on || !lose_members(why)) {
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
void Membership::report_command(const NodeInfo& info) {
  if (phase_ != Phase::running) return;
  const auto first = nodes_.find(round_.members.front().node_id);
  if (first == nodes_.end() || first->second.info.command.empty() || info.command.empty()) return;
  const auto difference = describe_command_difference(info.command, first->second.info.command);
  if (difference.empty()) return;
  post({info.id}, RendezvousWaiting{fmt::format("this node would run another command than node 0 (host {}): {}",
                                                first->second.info.host, difference)});
}

MembershipMessages Membership::reject_flapping(Time now, const NodeInfo& info) {
  post({info.id}, NodeDropped{.text = flapping_text(info.host), .may_return = false});
  if (nodes_.contains(info.id))
    remove(now, {info.id}, fmt::format("node {} was refused: it joined and left too often", info.host), Pending::cause);
  return take_messages();
}

// A node that rejoins keeps its rank and membership, so that it is selected first for the next round.
void Membership::admit(Time now, const NodeInfo& info, const SessionAddresses& addresses) {
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
std::int64_t Membership::generation_here(const FormerRound& former) const {
  return round_.members.empty() ? former.generation : std::min(former.generation, round_.generation - 1);
}

void Membership::resume_after(const FormerRound& former) {
  next_generation_ = std::max(next_generation_, former.generation + 1);
  restarts_used_ = std::max(restarts_used_, std::min(former.restarts_used, policy_.max_restarts));
  if (phase_ == Phase::forming && last_change_.empty()) last_change_ = "the rendezvous server was restarted";
}

// ---- events of a round

MembershipMessages Membership::ready(Time now, const std::string& id, std::int64_t generation,
                                     std::uint16_t worker_store_port) {
  record_activity(now, id);
  if (Node* node = current_member(id, generation, Phase::proposed)) {
    node->ready = true;
    node->store_port = worker_store_port;
    if (node->rank == 0) worker_store_port_ = worker_store_port;
    if (all_members(&Node::ready)) start_round(now);
  } else if (Node* joining = current_member(id, generation, Phase::running)) {
    joining->store_port = worker_store_port;
  }
  return take_messages();
}

MembershipMessages Membership::success(Time now, const std::string& id, std::int64_t generation) {
  return report_completion(now, id, generation, false);
}

MembershipMessages Membership::preempted(Time now, const std::string& id, std::int64_t generation) {
  return report_completion(now, id, generation, true);
}

MembershipMessages Membership::report_completion(Time now, const std::string& id, std::int64_t generation,
                                                 bool preempted) {
  record_activity(now, id);
  if (Node* node = current_member(id, generation, Phase::running)) {
    node->succeeded = true;
    preempted_ |= preempted;
    finish_if_all_succeeded();
  }
  return take_messages();
}

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
  remove(now, {id}, fmt::format("node {} left: {}", node.info.host, reason), Pending::cause, Departure::left);
  auto messages = take_messages();
  messages.insert(messages.begin(), {{id}, LeaveAnswered{.refusal = {}, .round_goes_on = phase_ == Phase::running}});
  return messages;
}

MembershipMessages Membership::session_closed(Time now, const std::string& id, const std::string& how) {
  liveness_clock_.advance(now);
  away_.erase(id);
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return {};
  const auto ranks = ranks_in(round_, node->second.member ? node->second.rank : std::nullopt);
  // A lease ends long after its node failed, so failures reported before are a consequence of it.
  const Pending failures = options_.leased ? Pending::consequence : Pending::cause;
  remove(now, {id}, fmt::format("node {} was lost: {}{}", node->second.info.host, how, ranks), failures);
  return take_messages();
}

MembershipMessages Membership::server_leaves(Time now, const std::string& why) {
  liveness_clock_.advance(now);
  if (!ended() && !policy_.may_be_replaced()) end_by_loss(why, Pending::cause);
  return take_messages();
}

MembershipMessages Membership::conflict(Time now, const std::string& why) {
  liveness_clock_.advance(now);
  if (!ended() && !has_formed()) end({.exit_code = exit_usage, .reason = why});
  return take_messages();
}

MembershipMessages Membership::beat(Time now, const std::string& id) {
  record_activity(now, id);
  if (const auto node = nodes_.find(id); node != nodes_.end()) node->second.heard_event = liveness_event_;
  return take_messages();
}

MembershipMessages Membership::stop(Time now, const std::string& who) {
  liveness_clock_.advance(now);
  if (!ended()) end({.exit_code = exit_for_signal(SIGTERM), .reason = fmt::format("stopped by {}", who)});
  return take_messages();
}

MembershipMessages Membership::tick(Time now) {
  liveness_clock_.advance(now);
  last_tick_ = now;
  if (phase_ == Phase::ended) return take_messages();
  if (liveness_clock_.reliable()) {
    check_heartbeats(now);
    check_failures(now);
    check_surplus(now);
    check_awaited(now);
  }
  heartbeat_due_ = next_heartbeat_deadline(now);
  check_ready(now);
  check_forming(now);
  if (phase_ == Phase::forming) announce(all_nodes());
  return take_messages();
}

Membership::Time Membership::next_tick() const {
  Time next = last_tick_ + policy_.keep_alive_interval / 2;
  if (awaited_ && awaited_->until > last_tick_) next = std::min(next, awaited_->until);
  for (const auto& timer : {form_deadline_, last_call_, ready_deadline_, judgement_due_, heartbeat_due_})
    if (timer && *timer > last_tick_) next = std::min(next, *timer);
  return next;
}

// ---- admission

std::optional<std::string> Membership::refusal(const NodeInfo& info, const JobPolicy& policy) const {
  if (ended()) return fmt::format("the job of run id '{}' has just ended; try again", policy_.run_id);
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

void Membership::record_activity(Time now, const std::string& id) {
  liveness_clock_.advance(now);
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return;
  node->second.last_heard = liveness_clock_.elapsed();
  node->second.heard_since_failure = true;
}

Membership::Node* Membership::current_member(const std::string& id, std::int64_t generation, Phase phase) {
  const auto node = nodes_.find(id);
  const bool current = phase_ == phase && generation == round_.generation;
  return current && node != nodes_.end() && node->second.member ? &node->second : nullptr;
}

// Returns why the node may not leave when it asks for it; empty if it may.
std::string Membership::leave_refusal(const std::string& id) const {
  const auto node = nodes_.find(id);
  if (phase_ != Phase::running || node == nodes_.end() || !node->second.member) return "it is in no round that runs";
  if (any_member_done() || judgement_due_ || !asking_.empty()) return "its round is about to change";
  if (static_cast<int>(nodes_.size()) <= policy_.min_nodes)
    return fmt::format("the job of --nnodes={} has {}", nnodes_text(policy_),
                       count_text(static_cast<int>(nodes_.size()), "node"));
  if (any_member_suspect()) return "a node has missed a heartbeat and may be lost";
  return {};
}

// Returns whether the others need a new round: they do not if the node's workers have all succeeded.
bool Membership::record_departure(Time now, const Node& node) {
  const bool needs_round = node.member && !(phase_ == Phase::running && node.succeeded);
  flapping_hosts_.left(now, node.info.host, node.joined, needs_round && !node.leaves_when_asked);
  return needs_round;
}

// Removes nodes as one change: the loss of a rack leads to one new round, not to one per node.
// The workers of a node that leaves would wait in its store for a change of the round, so that stays where it is.
void Membership::remove(Time now, const std::vector<std::string>& gone, const std::string& why, Pending failures,
                        Departure departure) {
  const bool store_leaves = departure == Departure::left && !round_.members.empty() &&
                            std::ranges::find(gone, round_.members.front().node_id) != gone.end();
  const bool goes_on = can_change_members() && !store_leaves;
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
    if (!goes_on || !lose_members(why)) change_round(now, why, failures);
  } else if (phase_ == Phase::running) {
    if (!nodes_.contains(round_.members.front().node_id))
      refuse_replacement(now, std::exchange(asking_, {}), "the node that serves the workers' store has left");
    finish_if_all_succeeded();
  }
  ask_spares();
}

// ---- rounds

// The current round has lost a member or gained one.
void Membership::change_round(Time now, const std::string& why, Pending failures) {
  if (!has_min_nodes() && !policy_.may_be_replaced()) return end_by_loss(why, failures);
  forget_failures();
  if (has_min_nodes())
    propose(now, why);
  else
    start_forming(now, why);
}

void Membership::start_forming(Time now, const std::string& why) {
  phase_ = Phase::forming;
  phase_since_ = now;
  recoverable_ = false;
  ready_deadline_.reset();
  last_call_.reset();
  form_deadline_ = now + policy_.join_timeout;
  last_change_ = why;
  for (auto& [id, node] : nodes_) node.member = false;
  announce(all_nodes());
}

void Membership::continue_forming(Time now) {
  if (!has_min_nodes()) return;
  const bool full = static_cast<int>(nodes_.size()) >= policy_.max_nodes;
  if (full || policy_.last_call.count() <= 0) return propose(now, last_change_.empty() ? "first round" : last_change_);
  if (!last_call_) last_call_ = now + policy_.last_call;
}

void Membership::propose(Time now, const std::string& why) {
  const std::vector<std::string> ids = select_members(static_cast<std::size_t>(policy_.max_nodes));
  for (auto& [id, node] : nodes_) {
    node.member = node.ready = node.succeeded = node.failed = node.wants_standby = false;
    node.store_port = 0;
  }
  round_ = make_round(ids, next_generation_++);
  phase_ = Phase::proposed;
  phase_since_ = now;
  preempted_ = recoverable_ = false;
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

// Selects at most so many nodes: members of the last round, then spares that stand by, then members of earlier rounds,
// as far as this server or the nodes know, then in order of arrival. The first of several nodes that had a rank keeps
// it.
std::vector<std::string> Membership::select_members(std::size_t most) const {
  std::vector<const Nodes::value_type*> order;
  for (const auto& entry : nodes_) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const auto* a, const auto* b) {
    const Node& x = a->second;
    const Node& y = b->second;
    return std::make_tuple(!x.member, !x.stands_by, -x.rank_of, x.arrival) <
           std::make_tuple(!y.member, !y.stands_by, -y.rank_of, y.arrival);
  });
  order.resize(std::min(order.size(), most));
  std::vector<std::string> ids;
  for (const auto* entry : order) ids.push_back(entry->first);
  return ids;
}

Round Membership::make_round(const std::vector<std::string>& ids, std::int64_t generation) {
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

void Membership::start_round(Time now) {
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

// ---- the end of the job

void Membership::finish_if_all_succeeded() {
  if (member_count() == 0 || !all_members(&Node::succeeded)) return;
  if (preempted_)
    return end({.exit_code = exit_preempted,
                .reason = "preempted: the workers have saved their state and stopped; start the job again to resume"});
  end({.success = true,
       .exit_code = exit_success,
       .reason = fmt::format("all {} on {} ended with 0", count_text(round_.world_size, "worker"),
                             count_text(static_cast<int>(round_.members.size()), "node"))});
}

void Membership::end(JobResult result) {
  if (is_full()) drop_surplus(surplus());
  phase_ = Phase::ended;
  for (auto* timer : {&form_deadline_, &last_call_, &ready_deadline_, &judgement_due_}) timer->reset();
  post(all_sessions(), JobEnded{std::move(result)});
}

// ---- time

StallAwareClock::Duration Membership::heartbeat_timeout() const {
  return policy_.heartbeat_timeout();
}

void Membership::check_heartbeats(Time now) {
  if (options_.leased) return;
  const auto silent = [&](StallAwareClock::Duration bound) {
    std::vector<std::string> ids;
    for (const auto& [id, node] : nodes_)
      if (liveness_clock_.elapsed() - node.last_heard >= bound) ids.push_back(id);
    return ids;
  };
  if (silent(heartbeat_timeout()).empty()) return;
  // Also removes nodes that have one heartbeat left, so that the loss of a rack leads to one new round.
  const StallAwareClock::Duration interval = policy_.keep_alive_interval;
  const auto lost = silent(std::max(heartbeat_timeout() - interval, std::min(heartbeat_timeout(), 2 * interval)));
  const std::string bound = duration_text(std::chrono::duration_cast<std::chrono::milliseconds>(heartbeat_timeout()));
  const Node& one = nodes_.at(lost.front());
  const std::string first = one.info.host;
  const std::string ranks = ranks_in(round_, one.member ? one.rank : std::nullopt);
  const std::string others = lost.size() > 1 ? fmt::format(" and {} more were", lost.size() - 1) : " was";
  post(lost, NodeDropped{.text = fmt::format(
                             "the rendezvous received nothing from this node for {} and counts it as lost", bound)});
  remove(now, lost,
         fmt::format("node {}{} lost: no heartbeat for {}, frozen or cut off{}", first, others, bound, ranks),
         Pending::consequence);
}

// The time at which the node with the oldest heartbeat counts as lost.
std::optional<Membership::Time> Membership::next_heartbeat_deadline(Time now) const {
  if (options_.leased || nodes_.empty() || !liveness_clock_.reliable()) return std::nullopt;
  const auto oldest = std::min_element(nodes_.begin(), nodes_.end(), [](const auto& a, const auto& b) {
    return a.second.last_heard < b.second.last_heard;
  });
  return now + (oldest->second.last_heard + heartbeat_timeout() - liveness_clock_.elapsed());
}

void Membership::check_forming(Time now) {
  if (phase_ != Phase::forming || awaited_) return;
  if (last_call_ && now >= *last_call_) return propose(now, last_change_.empty() ? "first round" : last_change_);
  if (last_call_ || !form_deadline_ || now < *form_deadline_) return;
  const std::string cause = last_change_.empty() ? "" : fmt::format("{}, and ", last_change_);
  end({.exit_code = exit_fault,
       .reason = fmt::format("{}after {} only {} of {} are here ({})", cause, duration_text(policy_.join_timeout),
                             nodes_.size(), count_text(policy_.min_nodes, "node"), missing_text())});
}

// A node that sends heartbeats but never becomes ready blocks all others.
void Membership::check_ready(Time now) {
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

// Drops the nodes that a full job does not need: none of its members is lost.
void Membership::check_surplus(Time now) {
  if (!any_surplus()) return;
  auto ids = surplus();
  std::erase_if(ids, [&](const auto& id) { return !all_members_heard_since(nodes_.at(id).arrival_event); });
  for (const auto& id : ids) record_departure(now, nodes_.at(id));
  drop_surplus(ids);
}

void Membership::drop_surplus(const std::vector<std::string>& ids) {
  post(ids, NodeDropped{.text = full_text(), .may_return = false});
  for (const auto& id : ids) nodes_.erase(id);
}

// A member that has missed a heartbeat may be the cause of the failures seen elsewhere: judge once it sends a heartbeat
// again or counts as lost.
bool Membership::any_member_suspect() const {
  const auto bound = 2 * StallAwareClock::Duration(policy_.keep_alive_interval);
  return std::any_of(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
    const Node& node = entry.second;
    const bool silent =
        options_.leased ? !node.heard_since_failure : liveness_clock_.elapsed() - node.last_heard > bound;
    return node.member && !node.failed && !node.succeeded && silent;
  });
}

bool Membership::any_surplus() const {
  return is_full() && member_count() == policy_.max_nodes && static_cast<int>(nodes_.size()) > policy_.max_nodes;
}

std::vector<std::string> Membership::surplus() const {
  std::vector<std::string> ids;
  for (const auto& [id, node] : nodes_)
    if (!node.member) ids.push_back(id);
  return ids;
}

bool Membership::all_members_heard_since(std::uint64_t event) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& entry) { return !entry.second.member || entry.second.heard_event >= event; });
}

// Sends the waiting text to the nodes that have not got it yet.
void Membership::announce(const std::vector<std::string>& ids) {
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

// ---- helpers

bool Membership::has_min_nodes() const {
  return static_cast<int>(nodes_.size()) >= policy_.min_nodes;
}

// The job has a round, a fixed number of nodes and no spares, so that no further node may take part.
bool Membership::is_full() const {
  return policy_.min_nodes == policy_.max_nodes && policy_.spares == 0 &&
         (phase_ == Phase::proposed || phase_ == Phase::running);
}

int Membership::member_count() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.member; }));
}

// A node of the round has succeeded. It may have left since: members are removed without a new round only then.
bool Membership::any_member_done() const {
  return member_count() < static_cast<int>(round_.members.size()) ||
         std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& entry) { return entry.second.member && entry.second.succeeded; });
}

bool Membership::all_members(bool Node::*flag) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& entry) { return !entry.second.member || entry.second.*flag; });
}

std::string Membership::missing_text() const {
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

std::string Membership::full_text() const {
  std::string hosts;
  for (const auto& member : round_.members)
    if (hosts.size() < 200) hosts += (hosts.empty() ? "" : ", ") + member.host;
  return fmt::format(
      "run id '{}' is in use by a job that has its {} (on {}); this node would run nothing: use another --rdzv_id for "
      "another job, or --nnodes=MIN:MAX for a job with spare nodes",
      policy_.run_id, count_text(static_cast<int>(round_.members.size()), "node"), hosts);
}

std::string Membership::flapping_text(const std::string& host) const {
  return fmt::format(
      "host {} has left run id '{}' {} times in a row, each within {} of joining; it may join again after it has "
      "stayed away for {}",
      host, policy_.run_id, flapping_hosts_.short_stays(host), duration_text(options_.flapping.short_stay),
      duration_text(options_.flapping.quiet_period));
}

std::string Membership::waiting_text() const {
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

std::vector<std::string> Membership::all_nodes() const {
  std::vector<std::string> ids;
  for (const auto& entry : nodes_) ids.push_back(entry.first);
  return ids;
}

std::vector<std::string> Membership::all_sessions() const {
  auto ids = all_nodes();
  ids.insert(ids.end(), away_.begin(), away_.end());
  return ids;
}

void Membership::post(std::vector<std::string> to, MembershipMessage::What what) {
  if (!to.empty()) messages_.push_back({std::move(to), std::move(what)});
}

MembershipMessages Membership::take_messages() {
  return std::exchange(messages_, {});
}

}  // namespace ddprun
