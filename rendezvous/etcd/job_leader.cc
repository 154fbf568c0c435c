#include "ddprun/rendezvous/etcd/job_leader.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace ddprun {
namespace {

constexpr MembershipOptions membership_options{.leased = true};

// Moves the times of a report to this process's clock.
std::vector<WorkerFailure> by_our_clock(const NodeRecord& record, std::int64_t here_us) {
  std::vector<WorkerFailure> failures = record.failures;
  for (auto& failure : failures) {
    const std::int64_t age = std::max<std::int64_t>(0, record.sent_us - failure.time_us);
    failure.time_us = std::max<std::int64_t>(0, here_us - age);
  }
  return failures;
}

}  // namespace

JobLeader::JobLeader(EtcdMoment now, std::string session, std::vector<Seen> nodes, std::optional<JobState> state,
                     std::optional<JobBoard> board)
    : session_(std::move(session)) {
  for (auto& node : nodes) {
    order_.push_back(node.id);
    nodes_[node.id] = std::move(node.record);
  }
  if (state) sequence_ = state->sequence;
  if (!state || !resume(now, *state, std::move(board))) begin(now);
  after_events(now);
}

// ---- taking over

void JobLeader::begin(EtcdMoment now) {
  const auto first = std::find_if(order_.begin(), order_.end(), [&](const auto& id) {
    return !nodes_.at(id).left && nodes_.at(id).version == job_records_version;
  });
  begin_under(first == order_.end() ? JobPolicy{} : nodes_.at(*first).policy);
  for (const auto& id : order_) take(now, id, nodes_.at(id));
}

void JobLeader::begin_under(const JobPolicy& policy) {
  board_ = JobBoard{.roll_call = board_.roll_call};
  sessions_.clear();
  called_.reset();
  dirty_ = true;
  membership_.emplace(policy, membership_options);
}

// False when nobody of that job is here any more.
bool JobLeader::resume(EtcdMoment now, const JobState& state, std::optional<JobBoard> board) {
  const auto here = [&](const std::string& id) {
    const auto node = nodes_.find(id);
    return node != nodes_.end() && !node->second.left;
  };
  board_ = board ? std::move(*board) : JobBoard{};
  const auto& known = state.membership.nodes;
  if (std::none_of(known.begin(), known.end(), [&](const auto& node) { return here(node.info.id); })) return false;
  sessions_ = state.sessions;
  membership_.emplace(now.steady, state.membership, membership_options);
  // Those that went first: what they had reported, and what was reported because of them, concerns a round that is
  // over then.
  for (const auto& node : known) {
    if (nodes_.contains(node.info.id)) continue;
    sessions_.erase(node.info.id);
    follow(membership_->session_closed(now.steady, node.info.id, "its lease ended"));
  }
  for (const auto& id : order_) take(now, id, nodes_.at(id));
  return true;
}

// ---- events

void JobLeader::node_written(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  if (!nodes_.contains(id)) order_.push_back(id);
  nodes_[id] = record;
  take(now, id, record);
  dirty_ = true;
  after_events(now);
}

void JobLeader::node_erased(EtcdMoment now, const std::string& id) {
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return;
  board_.turned_away.erase(node->second.session);
  nodes_.erase(node);
  order_.erase(std::find(order_.begin(), order_.end(), id));
  sessions_.erase(id);
  dirty_ = true;
  if (!ended()) follow(membership_->session_closed(now.steady, id, "its lease ended"));
  after_events(now);
}

void JobLeader::tick(EtcdMoment now) {
  after_events(now);
}

void JobLeader::take(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  if (ended()) return;  // newcomers wait for the next job
  if (record.left) {
    if (membership_->has(id) && sessions_.at(id) == record.session)
      follow(membership_->leave(now.steady, id, *record.left));
    return;
  }
  if (const auto known = sessions_.find(id); known == sessions_.end() || known->second != record.session) {
    if (record.version != job_records_version)
      return turn_away({id}, false,
                       fmt::format("the agent writes version {} of the job's records, the job's leader version {}: run "
                                   "the same ddprun on all nodes",
                                   record.version, job_records_version));
    if (membership_->empty()) begin_under(record.policy);
    sessions_[id] = record.session;
    follow(membership_->join(now.steady, record.info, record.policy, record.addresses));
  }
  if (board_.turned_away.contains(record.session)) return;
  if (record.stop) return follow(membership_->stop(now.steady, *record.stop));
  take_report(now, id, record);
}

void JobLeader::take_report(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  using Report = NodeRecord::Report;
  if (record.report == Report::ready)
    follow(membership_->ready(now.steady, id, record.generation, record.worker_store_port));
  if (record.report == Report::success) follow(membership_->success(now.steady, id, record.generation));
  if (record.report == Report::preempted) follow(membership_->preempted(now.steady, id, record.generation));
  if (record.report == Report::failure)
    follow(membership_->failure(now.steady, id, record.generation, by_our_clock(record, now.wall_us)));
  if (membership_->settling() && record.roll_call == board_.roll_call && called_ == membership_->generation())
    follow(membership_->beat(now.steady, id));
}

// What follows from the events of a moment, once they are all in.
void JobLeader::after_events(EtcdMoment now) {
  if (!ended()) follow(membership_->tick(now.steady));
  if (ended()) {
    if (!anybody_of_the_verdict_here() && !nodes_.empty()) begin(now);
    return;
  }
  if (membership_->settling() && called_ != membership_->generation()) {
    called_ = membership_->generation();
    ++board_.roll_call;
    dirty_ = true;
  }
}

// ---- what all are told

void JobLeader::follow(const MembershipMessages& messages) {
  for (const auto& message : messages) follow(message.to, message.what);
}

void JobLeader::follow(const std::vector<std::string>& to, const MembershipMessage::What& what) {
  dirty_ = true;
  if (const auto* refused = std::get_if<JoinRefused>(&what)) return turn_away(to, false, refused->text);
  if (const auto* dropped = std::get_if<NodeDropped>(&what)) return turn_away(to, true, dropped->text);
  if (const auto* waiting = std::get_if<RendezvousWaiting>(&what)) {
    if (membership_->forming()) board_.phase = JobBoard::Phase::forming;
    board_.waiting = waiting->text;
  } else if (const auto* proposed = std::get_if<RoundProposed>(&what)) {
    board_.phase = JobBoard::Phase::proposed;
    board_.round = proposed->round;
    board_.sessions.clear();
    for (const auto& id : to) board_.sessions.push_back(sessions_.at(id));
    board_.reason = proposed->reason;
    board_.waiting.clear();
  } else if (const auto* started = std::get_if<RoundStarted>(&what)) {
    board_.phase = JobBoard::Phase::running;
    board_.round = started->round;
  } else if (const auto* verdict = std::get_if<JobEnded>(&what)) {
    board_.phase = JobBoard::Phase::ended;
    board_.verdict = verdict->verdict;
    board_.heard_by = to;
  }
}

void JobLeader::turn_away(const std::vector<std::string>& ids, bool lost, const std::string& text) {
  for (const auto& id : ids)
    if (const auto node = nodes_.find(id); node != nodes_.end())
      board_.turned_away[node->second.session] = {.lost = lost, .text = text};
}

// ---- the records

JobState JobLeader::take_state(EtcdMoment now) {
  dirty_ = false;
  return {.writer = session_,
          .sequence = ++sequence_,
          .sessions = sessions_,
          .membership = membership_->snapshot(now.steady)};
}

bool JobLeader::anybody_of_the_verdict_here() const {
  return std::any_of(board_.heard_by.begin(), board_.heard_by.end(), [&](const auto& id) {
    const auto node = nodes_.find(id);
    return node != nodes_.end() && !node->second.left;
  });
}

bool JobLeader::alone_at_the_end(const std::string& self) const {
  return ended() && std::none_of(board_.heard_by.begin(), board_.heard_by.end(), [&](const auto& id) {
           const auto node = nodes_.find(id);
           return id != self && node != nodes_.end() && !node->second.left;
         });
}

}  // namespace ddprun
