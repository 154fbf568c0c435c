#include "rendezvous/etcd/job_leader.h"

#include <algorithm>
#include <utility>
#include <variant>

#include <fmt/format.h>

namespace ddprun {
namespace {

constexpr MembershipOptions membership_options{.leased = true};

// Converts the times of a report to the leader's clock.
std::vector<WorkerFailure> on_leader_clock(const NodeRecord& record, std::int64_t here_us) {
  std::vector<WorkerFailure> failures = record.failures;
  for (auto& failure : failures) {
    const std::int64_t age = std::max<std::int64_t>(0, record.sent_us - failure.time_us);
    failure.time_us = std::max<std::int64_t>(0, here_us - age);
  }
  return failures;
}

}  // namespace

JobLeader::JobLeader(EtcdMoment now, std::string session, std::vector<NodeEntry> nodes, std::optional<JobState> state,
                     std::optional<JobAnnouncement> announcement)
    : session_(std::move(session)) {
  for (auto& node : nodes) {
    order_.push_back(node.id);
    nodes_[node.id] = std::move(node.record);
  }
  if (state) sequence_ = state->sequence;
  if (!state || !resume(now, *state, std::move(announcement))) start_job(now);
  after_events(now);
}

// ---- taking over

void JobLeader::start_job(EtcdMoment now) {
  const auto first = std::find_if(order_.begin(), order_.end(), [&](const auto& id) {
    return !nodes_.at(id).left && nodes_.at(id).version == job_records_version;
  });
  reset_job(first == order_.end() ? JobPolicy{} : nodes_.at(*first).policy);
  for (const auto& id : order_) handle_record(now, id, nodes_.at(id));
}

void JobLeader::reset_job(const JobPolicy& policy) {
  announcement_ = JobAnnouncement{.liveness_check = announcement_.liveness_check};
  sessions_.clear();
  checked_event_.reset();
  dirty_ = true;
  membership_.emplace(policy, membership_options);
}

// Returns false if no node of that job is left.
bool JobLeader::resume(EtcdMoment now, const JobState& state, std::optional<JobAnnouncement> announcement) {
  const auto here = [&](const std::string& id) {
    const auto node = nodes_.find(id);
    return node != nodes_.end() && !node->second.left;
  };
  announcement_ = announcement ? std::move(*announcement) : JobAnnouncement{};
  const auto& known = state.membership.nodes;
  if (std::none_of(known.begin(), known.end(), [&](const auto& node) { return here(node.info.id); })) return false;
  sessions_ = state.sessions;
  membership_.emplace(now.steady, state.membership, membership_options);
  // Removes lost nodes first: that ends the round to which their reports, and the failures they caused, belong.
  for (const auto& node : known) {
    if (nodes_.contains(node.info.id)) continue;
    sessions_.erase(node.info.id);
    apply(membership_->session_closed(now.steady, node.info.id, "its lease ended"));
  }
  for (const auto& id : order_) handle_record(now, id, nodes_.at(id));
  return true;
}

// ---- events

void JobLeader::node_written(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  if (!nodes_.contains(id)) order_.push_back(id);
  nodes_[id] = record;
  handle_record(now, id, record);
  dirty_ = true;
  after_events(now);
}

void JobLeader::node_erased(EtcdMoment now, const std::string& id) {
  const auto node = nodes_.find(id);
  if (node == nodes_.end()) return;
  announcement_.rejected.erase(node->second.session);
  nodes_.erase(node);
  order_.erase(std::find(order_.begin(), order_.end(), id));
  sessions_.erase(id);
  dirty_ = true;
  if (!ended()) apply(membership_->session_closed(now.steady, id, "its lease ended"));
  after_events(now);
}

void JobLeader::tick(EtcdMoment now) {
  after_events(now);
}

void JobLeader::handle_record(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  if (ended()) return;  // new nodes wait for the next job
  if (record.left) {
    if (membership_->has(id) && sessions_.at(id) == record.session)
      apply(membership_->leave(now.steady, id, *record.left));
    return;
  }
  if (const auto known = sessions_.find(id); known == sessions_.end() || known->second != record.session) {
    if (record.version != job_records_version)
      return reject({id}, false,
                    fmt::format("the agent writes version {} of the job's records, the job's leader version {}: use "
                                "the same version of ddprun on all nodes",
                                record.version, job_records_version));
    if (membership_->empty()) reset_job(record.policy);
    sessions_[id] = record.session;
    apply(membership_->join(now.steady, record.info, record.policy, record.addresses));
  }
  if (announcement_.rejected.contains(record.session)) return;
  if (record.stop) return apply(membership_->stop(now.steady, *record.stop));
  handle_report(now, id, record);
}

void JobLeader::handle_report(EtcdMoment now, const std::string& id, const NodeRecord& record) {
  using Report = NodeRecord::Report;
  if (record.report == Report::ready)
    apply(membership_->ready(now.steady, id, record.generation, record.worker_store_port));
  if (record.report == Report::success) apply(membership_->success(now.steady, id, record.generation));
  if (record.report == Report::preempted) apply(membership_->preempted(now.steady, id, record.generation));
  if (record.report == Report::failure)
    apply(membership_->failure(now.steady, id, record.generation, on_leader_clock(record, now.wall_us)));
  if (membership_->liveness_pending() && record.liveness_check == announcement_.liveness_check &&
      checked_event_ == membership_->liveness_event())
    apply(membership_->beat(now.steady, id));
}

// Call after the events of one revision.
void JobLeader::after_events(EtcdMoment now) {
  if (!ended()) apply(membership_->tick(now.steady));
  if (ended()) {
    if (!any_recipient_left() && !nodes_.empty()) start_job(now);
    return;
  }
  if (membership_->liveness_pending() && checked_event_ != membership_->liveness_event()) {
    checked_event_ = membership_->liveness_event();
    ++announcement_.liveness_check;
    dirty_ = true;
  }
}

// ---- the announcement

void JobLeader::apply(const MembershipMessages& messages) {
  for (const auto& message : messages) apply(message.to, message.what);
}

void JobLeader::apply(const std::vector<std::string>& to, const MembershipMessage::What& what) {
  dirty_ = true;
  if (const auto* refused = std::get_if<JoinRefused>(&what)) return reject(to, false, refused->text);
  if (const auto* dropped = std::get_if<NodeDropped>(&what)) return reject(to, true, dropped->text);
  if (const auto* waiting = std::get_if<RendezvousWaiting>(&what)) {
    if (membership_->forming()) announcement_.phase = JobAnnouncement::Phase::forming;
    announcement_.waiting = waiting->text;
  } else if (const auto* proposed = std::get_if<RoundProposed>(&what)) {
    announcement_.phase = JobAnnouncement::Phase::proposed;
    announcement_.round = proposed->round;
    announcement_.sessions.clear();
    for (const auto& id : to) announcement_.sessions.push_back(sessions_.at(id));
    announcement_.reason = proposed->reason;
    announcement_.waiting.clear();
  } else if (const auto* started = std::get_if<RoundStarted>(&what)) {
    announcement_.phase = JobAnnouncement::Phase::running;
    announcement_.round = started->round;
  } else if (const auto* ended = std::get_if<JobEnded>(&what)) {
    announcement_.phase = JobAnnouncement::Phase::ended;
    announcement_.result = ended->result;
    announcement_.recipients = to;
  }
}

void JobLeader::reject(const std::vector<std::string>& ids, bool lost, const std::string& text) {
  for (const auto& id : ids)
    if (const auto node = nodes_.find(id); node != nodes_.end())
      announcement_.rejected[node->second.session] = {.lost = lost, .text = text};
}

// ---- the records

JobState JobLeader::take_state(EtcdMoment now) {
  dirty_ = false;
  return {.writer = session_,
          .sequence = ++sequence_,
          .sessions = sessions_,
          .membership = membership_->snapshot(now.steady)};
}

bool JobLeader::any_recipient_left() const {
  return std::any_of(announcement_.recipients.begin(), announcement_.recipients.end(), [&](const auto& id) {
    const auto node = nodes_.find(id);
    return node != nodes_.end() && !node->second.left;
  });
}

bool JobLeader::all_others_left(const std::string& self) const {
  return ended() && std::none_of(announcement_.recipients.begin(), announcement_.recipients.end(), [&](const auto& id) {
           const auto node = nodes_.find(id);
           return id != self && node != nodes_.end() && !node->second.left;
         });
}

}  // namespace ddprun
