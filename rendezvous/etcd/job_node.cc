#include "rendezvous/etcd/job_node.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "common/error.h"
#include "common/log.h"

namespace ddprun {
namespace {

using Kind = EtcdOperation::Kind;
using Lease = EtcdOperation::Lease;
using Target = EtcdCompare::Target;

EtcdOperation put(std::string key, std::string value, Lease lease) {
  return {.kind = Kind::put, .key = std::move(key), .value = std::move(value), .lease = lease};
}
EtcdOperation erase(std::string key) {
  return {.kind = Kind::erase, .key = std::move(key)};
}
EtcdOperation read(std::string key) {
  return {.kind = Kind::read, .key = std::move(key)};
}

const EtcdKeyValue* find(const EtcdTxnResult& result, const std::string& key) {
  const auto found = std::find_if(result.read.begin(), result.read.end(), [&](const auto& e) { return e.key == key; });
  return found == result.read.end() ? nullptr : &*found;
}

// Returns nullopt with a warning for a record that cannot be parsed: one bad key must not end the job.
std::optional<NodeRecord> readable(const std::string& key, const std::string& text) {
  try {
    return parse_node_record(key, text);
  } catch (const Error& error) {
    log::warn("{}", error.what());
    return std::nullopt;
  }
}

}  // namespace

JobNode::JobNode(JobKeys keys, std::string session, NodeInfo self, JobPolicy policy, SessionAddresses addresses)
    : keys_(std::move(keys)) {
  record_.session = std::move(session);
  record_.info = std::move(self);
  record_.policy = std::move(policy);
  record_.addresses = std::move(addresses);
}

// ---- from the agent

void JobNode::report(NodeRecord::Report report, std::int64_t generation) {
  record_.report = report;
  record_.generation = generation;
  record_.worker_store_port = 0;
  record_.failures.clear();
  record_changed_ = true;
}

void JobNode::ready(std::int64_t generation, std::uint16_t worker_store_port) {
  report(NodeRecord::Report::ready, generation);
  record_.worker_store_port = worker_store_port;
}

void JobNode::success(EtcdMoment now, std::int64_t generation) {
  report(NodeRecord::Report::success, generation);
  record_.sent_us = now.wall_us;
}

void JobNode::preempted(EtcdMoment now, std::int64_t generation) {
  report(NodeRecord::Report::preempted, generation);
  record_.sent_us = now.wall_us;
}

void JobNode::failure(EtcdMoment now, std::int64_t generation, const std::vector<WorkerFailure>& failures) {
  report(NodeRecord::Report::failure, generation);
  record_.failures = failures;
  record_.sent_us = now.wall_us;
}

void JobNode::request_stop(const std::string& who) {
  record_.stop = who;
  record_changed_ = true;
}

void JobNode::finish() {
  finishing_ = true;
}

EtcdTxn JobNode::leave(const std::string& reason) const {
  NodeRecord last = record_;
  last.left = reason;
  const auto put_last = put(keys_.node(record_.info.id), to_json(last), Lease::node);
  if (!fence_) return {.success = {put_last}};
  return {.compare = {fenced()}, .success = {put_last, erase(keys_.leader())}, .failure = {put_last}};
}

// ---- from etcd

void JobNode::resync(EtcdMoment now, const std::string& prefix, const std::vector<EtcdKeyValue>& all,
                     std::int64_t revision) {
  const auto entry = [&](const std::string& key) {
    const auto found = std::find_if(all.begin(), all.end(), [&](const auto& e) { return e.key == key; });
    return found == all.end() ? nullptr : &*found;
  };
  synced_ = true;
  const auto* leader = entry(keys_.leader());
  leader_key_ = leader ? std::optional(*leader) : std::nullopt;
  const bool ours = fence_ && ((leader && leader->create_revision == *fence_) || revision < *fence_);
  if (fence_ && !ours) step_down();
  adopt_late_election();
  const auto* announcement = entry(keys_.announcement());
  if (fence_ && prefix == keys_.all() && revision >= *fence_) {
    std::vector<EtcdKeyValue> nodes;
    for (const auto& e : all)
      if (!keys_.node_of(e.key).empty()) nodes.push_back(e);
    std::sort(nodes.begin(), nodes.end(),
              [](const auto& a, const auto& b) { return a.create_revision < b.create_revision; });
    std::vector<JobLeader::NodeEntry> seen;
    for (const auto& e : nodes)
      if (auto record = readable(e.key, e.value))
        seen.push_back({std::string(keys_.node_of(e.key)), std::move(*record)});
    const auto* state = entry(keys_.state());
    state_revision_ = state ? state->mod_revision : 0;
    leader_.emplace(
        now, record_.session, std::move(seen),
        state ? std::optional(parse_job_state(state->key, state->value)) : std::nullopt,
        announcement ? std::optional(parse_job_announcement(announcement->key, announcement->value)) : std::nullopt);
  }
  if (announcement) handle_announcement(announcement->value);
}

void JobNode::changed(EtcdMoment now, const EtcdChange& change) {
  const auto& entry = change.entry;
  if (entry.key == keys_.leader()) {
    leader_key_ = change.erased ? std::nullopt : std::optional(entry);
    const bool ours = fence_ && (change.erased ? entry.mod_revision < *fence_ : entry.create_revision <= *fence_);
    if (fence_ && !ours) step_down();
    adopt_late_election();
  } else if (entry.key == keys_.announcement()) {
    if (!change.erased) handle_announcement(entry.value);
  } else if (leader_) {
    forward_to_leader(now, change);
  }
}

void JobNode::forward_to_leader(EtcdMoment now, const EtcdChange& change) {
  const std::string id(keys_.node_of(change.entry.key));
  if (id.empty()) return;
  if (change.erased) return leader_->node_erased(now, id);
  if (const auto record = readable(change.entry.key, change.entry.value)) leader_->node_written(now, id, *record);
}

// An attempt to create the leader's key that got no response may succeed later, when the key has become free.
void JobNode::adopt_late_election() {
  if (!fence_ && leader_key_ && leader_key_->value == record_.session) fence_ = leader_key_->create_revision;
}

void JobNode::step_down() {
  fence_.reset();
  leader_.reset();
}

// ---- the leader's announcement

void JobNode::handle_announcement(const std::string& text) {
  if (closed_ || text == announcement_text_) return;
  announcement_text_ = text;
  const JobAnnouncement announcement = parse_job_announcement(keys_.announcement(), text);
  if (record_.liveness_check < announcement.liveness_check) {
    record_.liveness_check = announcement.liveness_check;
    record_changed_ = true;
  }
  if (const auto away = announcement.rejected.find(record_.session); away != announcement.rejected.end()) {
    closed_ = true;
    events_.push_back(ContactLost{Error(away->second.lost ? Errc::peer_lost : Errc::usage, away->second.text)});
    return;
  }
  if (announcement.phase != JobAnnouncement::Phase::ended) return handle_round(announcement);
  const auto& concerned = announcement.recipients;
  closed_ = std::find(concerned.begin(), concerned.end(), record_.info.id) != concerned.end();
  if (closed_)
    events_.push_back(JobEnded{announcement.result});
  else
    report_waiting({.waiting = fmt::format("run id '{}' is in use by a job that is ending; waiting for it",
                                           record_.policy.run_id)});
}

void JobNode::handle_round(const JobAnnouncement& announcement) {
  Round round = announcement.round;
  const auto self = std::find_if(round.members.begin(), round.members.end(),
                                 [this](const auto& member) { return member.node_id == record_.info.id; });
  const auto index = static_cast<std::size_t>(self - round.members.begin());
  const bool ours = index < announcement.sessions.size() && announcement.sessions[index] == record_.session;
  if (announcement.phase == JobAnnouncement::Phase::forming || !ours) return report_waiting(announcement);
  round.self = static_cast<int>(index);
  reported_waiting_.clear();
  if (round.generation > proposed_) {
    proposed_ = round.generation;
    Round without_store = round;
    without_store.master_addr.clear();
    without_store.master_port = 0;
    events_.push_back(RoundProposed{std::move(without_store), announcement.reason});
  }
  const bool prepared = record_.report == NodeRecord::Report::ready && record_.generation == round.generation;
  if (announcement.phase == JobAnnouncement::Phase::running && prepared && started_ < round.generation) {
    started_ = round.generation;
    events_.push_back(RoundStarted{std::move(round)});
  }
}

void JobNode::report_waiting(const JobAnnouncement& announcement) {
  if (announcement.waiting.empty() || announcement.waiting == reported_waiting_) return;
  reported_waiting_ = announcement.waiting;
  events_.push_back(RendezvousWaiting{announcement.waiting});
}

// ---- transactions

std::optional<EtcdTxn> JobNode::next_txn(EtcdMoment now) {
  if (step_ != Step::none || gone_) return std::nullopt;
  const std::string self = record_.info.id;
  if (finishing_ && (!leader_ || !leader_->ended() || leader_->all_others_left(self))) {
    step_ = Step::finish;
    return erase_all();
  }
  if (record_changed_ && !finishing_) return write_node();
  if (synced_ && !leader_key_ && !fence_ && !finishing_) return campaign();
  if (leader_ && leader_->dirty()) return lead(now);
  return std::nullopt;
}

EtcdCompare JobNode::fenced() const {
  return {.target = Target::create, .key = keys_.leader(), .revision = *fence_};
}

// Requires the revision seen last, so that a write that got no response and arrives late cannot undo a later one.
EtcdTxn JobNode::write_node() {
  step_ = Step::write_node;
  record_changed_ = false;
  written_ = to_json(record_);
  const std::string key = keys_.node(record_.info.id);
  return {.compare = {{.target = Target::mod, .key = key, .revision = node_revision_}},
          .success = {put(key, written_, Lease::node)},
          .failure = {read(key)}};
}

void JobNode::node_written(const EtcdTxnResult& result) {
  if (result.succeeded) {
    node_revision_ = result.revision;
    return;
  }
  const auto* there = find(result, keys_.node(record_.info.id));
  node_revision_ = there ? there->mod_revision : 0;
  // If the text is the same, an earlier attempt without a response has succeeded.
  if (!there || there->value != written_) record_changed_ = true;
}

EtcdTxn JobNode::campaign() {
  step_ = Step::campaign;
  return {.compare = {{.target = Target::create, .key = keys_.leader(), .revision = 0}},
          .success = {put(keys_.leader(), record_.session, Lease::node)},
          .failure = {read(keys_.leader())}};
}

void JobNode::campaigned(const EtcdTxnResult& result) {
  const auto* there = find(result, keys_.leader());
  if (result.succeeded) {
    fence_ = result.revision;
    leader_key_ = EtcdKeyValue{.key = keys_.leader(),
                               .value = record_.session,
                               .create_revision = result.revision,
                               .mod_revision = result.revision};
  } else if (there) {
    if (there->value == record_.session) fence_ = there->create_revision;
    leader_key_ = *there;
  }
}

EtcdTxn JobNode::lead(EtcdMoment now) {
  step_ = Step::lead;
  state_text_ = to_json(leader_->take_state(now));
  EtcdTxn txn{.compare = {fenced(), {.target = Target::mod, .key = keys_.state(), .revision = state_revision_}},
              .success = {put(keys_.state(), state_text_, Lease::job)},
              .failure = {read(keys_.leader()), read(keys_.state())}};
  if (auto announcement = to_json(leader_->announcement()); announcement != written_announcement_) {
    txn.success.push_back(put(keys_.announcement(), announcement, Lease::job));
    written_announcement_ = std::move(announcement);
  }
  return txn;
}

void JobNode::led(const EtcdTxnResult& result) {
  if (!leader_) return;
  if (result.succeeded) {
    state_revision_ = result.revision;
    return;
  }
  const auto* leader = find(result, keys_.leader());
  if (!leader || leader->create_revision != *fence_) return step_down();
  const auto* state = find(result, keys_.state());
  state_revision_ = state ? state->mod_revision : 0;
  if (state && state->value == state_text_) return;
  written_announcement_.clear();
  leader_->set_dirty();
}

EtcdTxn JobNode::erase_all() {
  const auto own = erase(keys_.node(record_.info.id));
  if (!fence_) return {.success = {own}};
  EtcdTxn txn{.compare = {fenced()}, .success = {own, erase(keys_.leader())}, .failure = {own}};
  if (leader_ && leader_->ended()) {
    txn.success.push_back(erase(keys_.state()));
    txn.success.push_back(erase(keys_.announcement()));
  }
  return txn;
}

void JobNode::answered(const EtcdTxnResult& result) {
  switch (std::exchange(step_, Step::none)) {
    case Step::write_node:
      return node_written(result);
    case Step::campaign:
      return campaigned(result);
    case Step::lead:
      return led(result);
    case Step::finish:
      gone_ = true;
      return;
    case Step::none:
      return;
  }
}

// ---- time

void JobNode::tick(EtcdMoment now) {
  if (leader_) leader_->tick(now);
}

std::optional<Membership::Time> JobNode::next_tick() const {
  return leader_ ? std::optional(leader_->next_tick()) : std::nullopt;
}

}  // namespace ddprun
