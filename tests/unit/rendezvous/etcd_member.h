#pragma once

#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "rendezvous/etcd/job_node.h"
#include "tests/support/fake_etcd.h"

namespace ddprun::testing {

inline const JobKeys job_keys("/ddprun", "job");

// A JobNode with the work of EtcdRendezvous (lease, watch, one transaction at a time), and an agent that
// executes every event.
struct Member {
  Member(FakeEtcd& store, const std::string& name, const JobPolicy& policy, std::string session_name = "")
      : etcd(store),
        id(name),
        session(session_name.empty() ? "session of " + name : std::move(session_name)),
        lease(store.grant()),
        node(job_keys, session, {.id = name, .host = name}, policy, {.peer = "10.0.0.1", .local = "10.0.0.9"}) {}

  bool watch_step(EtcdMoment now) {
    if (prefix != node.watched()) {
      rewatch(now);
      return true;
    }
    const auto& history = etcd.history();
    while (position < history.size()) {
      const auto& next = history[position++];
      if (next.revision <= synced || !next.change.entry.key.starts_with(prefix)) continue;
      node.changed(now, next.change);
      process_events();
      return true;
    }
    return false;
  }
  void rewatch(EtcdMoment now) {
    prefix = node.watched();
    synced = etcd.revision();
    position = etcd.history().size();
    node.resync(now, prefix, etcd.range(prefix), synced);
    process_events();
  }
  bool write_step(EtcdMoment now) {
    if (!pending) pending = node.next_txn(now);
    if (!pending) return false;
    const auto result = etcd.apply(*pending, lease, 0);
    pending.reset();
    node.answered(result);
    process_events();
    return true;
  }

  void process_events() {
    for (auto& event : node.take_events()) {
      if (auto* round = std::get_if<RoundProposed>(&event)) handle_proposed(*round);
      if (auto* started = std::get_if<RoundStarted>(&event)) {
        running = started->round;
        if (on_start) on_start(*this);
      }
      if (auto* ended = std::get_if<JobEnded>(&event)) job_result = ended->result, running.reset();
      if (auto* lost = std::get_if<ContactLost>(&event)) contact_lost = lost->error.what(), running.reset();
      if (auto* waiting = std::get_if<RendezvousWaiting>(&event)) last_wait = waiting->text;
    }
  }
  void handle_proposed(const RoundProposed& event) {
    running.reset();
    proposed = event.round;
    reason = event.reason;
    if (!slow) get_ready();
  }
  void get_ready() {
    if (!proposed || !prepared.insert(proposed->generation).second) return;
    node.ready(proposed->generation, 29501);
  }

  FakeEtcd& etcd;
  const std::string id, session;
  std::int64_t lease;
  JobNode node;
  std::string prefix;
  std::int64_t synced = 0;
  std::size_t position = 0;
  std::optional<EtcdTxn> pending;

  std::optional<Round> proposed, running;
  std::set<std::int64_t> prepared;
  bool slow = false;  // the owner calls get_ready()
  std::optional<JobResult> job_result;
  std::string contact_lost, reason, last_wait;
  std::function<void(Member&)> on_start;
};

}  // namespace ddprun::testing
