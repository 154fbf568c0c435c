#include "rendezvous/membership/membership.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include <fmt/format.h>

#include "common/exit_code.h"
#include "rendezvous/membership/membership_text.h"

namespace ddprun {

MembershipState::MembershipState(JobPolicy policy, MembershipOptions options)
    : policy_(std::move(policy)),
      options_(options),
      flapping_hosts_(options.flapping),
      liveness_clock_(policy_.keep_alive_interval / 2) {}

Membership::Membership(JobPolicy policy, MembershipOptions options) : MembershipState(std::move(policy), options) {}

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

MembershipMessages MembershipState::report_completion(Time now, const std::string& id, std::int64_t generation,
                                                      bool preempted) {
  record_activity(now, id);
  if (Node* node = current_member(id, generation, Phase::running)) {
    node->succeeded = true;
    preempted_ |= preempted;
    finish_if_all_succeeded();
  }
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

MembershipState::Node* MembershipState::current_member(const std::string& id, std::int64_t generation, Phase phase) {
  const auto node = nodes_.find(id);
  const bool current = phase_ == phase && generation == round_.generation;
  return current && node != nodes_.end() && node->second.member ? &node->second : nullptr;
}

void MembershipState::finish_if_all_succeeded() {
  if (member_count() == 0 || !all_members(&Node::succeeded)) return;
  if (preempted_)
    return end({.exit_code = exit_preempted,
                .reason = "preempted: the workers have saved their state and stopped; start the job again to resume"});
  end({.success = true,
       .exit_code = exit_success,
       .reason = fmt::format("all {} on {} ended with 0", count_text(round_.world_size, "worker"),
                             count_text(static_cast<int>(round_.members.size()), "node"))});
}

void MembershipState::end(JobResult result) {
  if (is_full()) drop_surplus(surplus());
  phase_ = Phase::ended;
  for (auto* timer : {&form_deadline_, &last_call_, &ready_deadline_, &judgement_due_}) timer->reset();
  post(all_sessions(), JobEnded{std::move(result)});
}

bool MembershipState::has_min_nodes() const {
  return static_cast<int>(nodes_.size()) >= policy_.min_nodes;
}

// The job has a round, a fixed number of nodes and no spares, so that no further node may take part.
bool MembershipState::is_full() const {
  return policy_.min_nodes == policy_.max_nodes && policy_.spares == 0 &&
         (phase_ == Phase::proposed || phase_ == Phase::running);
}

int MembershipState::member_count() const {
  return static_cast<int>(
      std::count_if(nodes_.begin(), nodes_.end(), [](const auto& entry) { return entry.second.member; }));
}

// A node of the round has succeeded. It may have left since: members are removed without a new round only then.
bool MembershipState::any_member_done() const {
  return member_count() < static_cast<int>(round_.members.size()) ||
         std::any_of(nodes_.begin(), nodes_.end(),
                     [](const auto& entry) { return entry.second.member && entry.second.succeeded; });
}

bool MembershipState::all_members(bool Node::*flag) const {
  return std::all_of(nodes_.begin(), nodes_.end(),
                     [&](const auto& entry) { return !entry.second.member || entry.second.*flag; });
}

std::vector<std::string> MembershipState::all_nodes() const {
  std::vector<std::string> ids;
  for (const auto& entry : nodes_) ids.push_back(entry.first);
  return ids;
}

std::vector<std::string> MembershipState::all_sessions() const {
  auto ids = all_nodes();
  ids.insert(ids.end(), away_.begin(), away_.end());
  return ids;
}

void MembershipState::post(std::vector<std::string> to, MembershipMessage::What what) {
  if (!to.empty()) messages_.push_back({std::move(to), std::move(what)});
}

MembershipMessages MembershipState::take_messages() {
  return std::exchange(messages_, {});
}

}  // namespace ddprun
