#include "rendezvous/membership/membership_snapshot.h"

#include <algorithm>

#include "rendezvous/membership/membership.h"

namespace ddprun {
namespace {

using Time = Membership::Time;
using std::chrono::milliseconds;

std::optional<milliseconds> left_until(const std::optional<Time>& when, Time now) {
  if (!when) return std::nullopt;
  return std::max(milliseconds(0), std::chrono::ceil<milliseconds>(*when - now));
}

std::optional<Time> after(const std::optional<milliseconds>& left, Time now) {
  return left ? std::optional(now + *left) : std::nullopt;
}

}  // namespace

MembershipSnapshot Membership::snapshot(Time now) const {
  MembershipSnapshot s{.policy = policy_,
                       .policy_host = policy_host_,
                       .phase = phase_,
                       .former_ranks = former_ranks_,
                       .arrivals = arrivals_,
                       .round = round_,
                       .next_generation = next_generation_,
                       .worker_store_port = worker_store_port_,
                       .restarts_used = restarts_used_,
                       .preempted = preempted_,
                       .form_left = left_until(form_deadline_, now),
                       .last_call_left = left_until(last_call_, now),
                       .ready_left = left_until(ready_deadline_, now),
                       .judgement_left = left_until(judgement_due_, now),
                       .failures = failures_,
                       .last_change = last_change_};
  for (const auto& [id, node] : nodes_)
    s.nodes.push_back({.info = node.info,
                       .addresses = node.addresses,
                       .arrival = node.arrival,
                       .joined_ago = std::chrono::duration_cast<milliseconds>(now - node.joined),
                       .rank = node.rank,
                       .rank_of = node.rank_of,
                       .member = node.member,
                       .ready = node.ready,
                       .succeeded = node.succeeded,
                       .failed = node.failed});
  return s;
}

// Every node's heartbeat counts as received now, but before the failure that awaits judgement; no node has received the
// waiting text.
Membership::Membership(Time now, const MembershipSnapshot& s, MembershipOptions options)
    : Membership(s.policy, options) {
  liveness_clock_.advance(now);
  last_tick_ = phase_since_ = now;
  liveness_event_ = 1;
  policy_host_ = s.policy_host;
  phase_ = s.phase;
  for (const auto& node : s.nodes) {
    flapping_hosts_.joined(node.info.host);
    nodes_[node.info.id] = {.info = node.info,
                            .addresses = node.addresses,
                            .arrival = node.arrival,
                            .joined = now - node.joined_ago,
                            .last_heard = liveness_clock_.elapsed(),
                            .arrival_event = liveness_event_,
                            .rank = node.rank,
                            .rank_of = node.rank_of,
                            .member = node.member,
                            .ready = node.ready,
                            .succeeded = node.succeeded,
                            .failed = node.failed};
  }
  former_ranks_ = s.former_ranks;
  arrivals_ = s.arrivals;
  round_ = s.round;
  next_generation_ = s.next_generation;
  worker_store_port_ = s.worker_store_port;
  restarts_used_ = s.restarts_used;
  preempted_ = s.preempted;
  form_deadline_ = after(s.form_left, now);
  last_call_ = after(s.last_call_left, now);
  ready_deadline_ = after(s.ready_left, now);
  judgement_due_ = after(s.judgement_left, now);
  failures_ = s.failures;
  last_change_ = s.last_change;
}

}  // namespace ddprun
