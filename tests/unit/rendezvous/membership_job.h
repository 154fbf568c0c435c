#pragma once

#include <algorithm>
#include <chrono>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/membership/membership.h"

namespace ddprun::testing {

using namespace std::chrono_literals;

// A membership with a virtual clock, and the last message of each kind to each node.
class Job {
 public:
  explicit Job(JobPolicy policy) : policy_(std::move(policy)), membership_(policy_) {}

  // Advances the clock tick by tick; the nodes in alive_ send heartbeats.
  void pass(Membership::Clock::duration time) {
    const auto end = now_ + time;
    while (now_ < end) {
      now_ = std::min(end, membership_.next_tick());
      for (const auto& node : alive_) deliver(membership_.beat(now_, node));
      deliver(membership_.tick(now_));
    }
  }
  // The server is stopped for a while.
  void freeze(Membership::Clock::duration time) { now_ += time; }

  void join(const std::string& host, std::optional<int> node_rank = std::nullopt, int nproc = 1) {
    join(host, policy_, node_rank, nproc);
  }
  void join(const std::string& host, const JobPolicy& policy, std::optional<int> node_rank = std::nullopt,
            int nproc = 1) {
    const NodeInfo info{.id = host, .host = host, .nproc = nproc, .node_rank = node_rank};
    alive_.insert(host);
    deliver(membership_.join(now_, info, policy, {"10.0.0." + std::to_string(alive_.size()), "10.0.0.1"}));
  }
  // Joins a node that was in a round of a previous server.
  void rejoin(const std::string& host, const FormerRound& former) {
    alive_.insert(host);
    deliver(membership_.join(now_, {.id = host, .host = host, .former = former}, policy_, {"10.0.0.2", "10.0.0.1"}));
  }
  // This server has been elected, and acts once the nodes that can come have joined.
  void elected() { membership_.await_nodes(); }
  void continue_round() { deliver(membership_.continue_round(now_, "the server was lost")); }
  void server_leaves() { deliver(membership_.server_leaves(now_, "stopped by SIGTERM")); }
  void join_and_start(const std::vector<std::string>& hosts) {
    for (const auto& host : hosts) join(host);
    ready_all();
  }
  // store_port: of the workers' store that the node serves, or would.
  void ready(const std::string& node, std::uint16_t store_port = 4000) {
    deliver(membership_.ready(now_, node, proposed.at(node).round.generation, store_port));
  }
  // The node is ready for the round that it joins while it runs.
  void ready_to_join(const std::string& node, std::uint16_t store_port) {
    deliver(membership_.ready(now_, node, membership_.generation(), store_port));
  }
  void ready_all() {
    const auto all = proposed;
    for (const auto& [node, round] : all) ready(node);
  }
  void success(const std::string& node) { deliver(membership_.success(now_, node, membership_.generation())); }
  void fail(const std::string& node, WorkerFailure failure) { fail(node, failure, membership_.generation()); }
  void fail(const std::string& node, WorkerFailure failure, std::int64_t generation) {
    failure.host = node;
    deliver(membership_.failure(now_, node, generation, {failure}));
  }
  // A worker of the node was killed; its other workers run. local_rank: that of the rank in the round, unless given.
  void lose_worker(const std::string& node, int rank, Survivors survivors = Survivors::run,
                   std::optional<int> local_rank = std::nullopt) {
    const auto round = started.find(node);  // none in one that goes on at a new server
    const int self = round == started.end() ? 0 : round->second.self;
    const int first =
        round == started.end() ? rank : round->second.members.at(static_cast<std::size_t>(self)).first_rank;
    const WorkerFailure failure{.rank = rank,
                                .local_rank = local_rank.value_or(rank - first),
                                .group_rank = self,
                                .host = node,
                                .signal_number = 9,
                                .last_lines = "lines\n"};
    deliver(membership_.failure(now_, node, membership_.generation(), {failure}, survivors));
  }
  void answer(const std::string& node, const std::string& refusal = "") {
    deliver(membership_.recovery_answered(now_, node, membership_.generation(), refusal));
  }
  void say_recoverable(const std::string& node, bool all) {
    deliver(membership_.recoverable(now_, node, membership_.generation(), all));
  }
  // The node of the round reports that all of its workers want a process to stand by.
  void want_standby(const std::string& node) {
    deliver(membership_.report(now_, node, membership_.generation(), {.workers = {}, .wants_standby = true}));
  }
  // The node reports that its worker, of this process, has made a step.
  void train(const std::string& node, std::int64_t pid) {
    deliver(membership_.report(now_, node, membership_.generation(),
                               {.workers = {{.local_rank = 0, .pid = pid, .training = TrainingReport{.step = 1}}}}));
  }
  // Group rank 0 reports the workers that have got the state.
  void tell_of_state(const std::string& node, const std::vector<std::string>& workers) {
    deliver(membership_.report(now_, node, membership_.generation(), {.workers = {}, .got_state = workers}));
  }
  // The spare reports whether its processes are ready.
  void stand_by(const std::string& node, bool ready) {
    deliver(membership_.report(now_, node, membership_.generation(), {.workers = {}, .stands_by = ready}));
  }
  JobStatus status() const { return membership_.status(now_); }
  void leave(const std::string& node) {
    forget(node);
    deliver(membership_.leave(now_, node, "SIGTERM"));
  }
  // The answer is in leave_answers; empty: the node has left.
  std::string ask_to_leave(const std::string& node) {
    deliver(membership_.leave_asked(now_, node, "a trial"));
    return leave_answers.at(node);
  }
  void lose(const std::string& node) {
    forget(node);
    deliver(membership_.session_closed(now_, node, "its connection closed"));
  }
  bool is_empty() const { return membership_.empty(); }
  void silence(const std::string& node) { alive_.erase(node); }
  void beat(const std::string& node) { deliver(membership_.beat(now_, node)); }
  void tick() { deliver(membership_.tick(now_)); }

  const Round& running() const { return started.begin()->second; }
  std::map<std::string, int> ranks() const {
    std::map<std::string, int> result;
    for (const auto& member : proposed.begin()->second.round.members) result[member.node_id] = member.group_rank;
    return result;
  }
  Membership& membership() { return membership_; }

  // The last message of each kind, by node; a proposal revokes the start before it.
  std::map<std::string, std::string> refused, dropped, waiting, leave_answers;
  std::map<std::string, RoundProposed> proposed;
  std::map<std::string, Round> started;
  std::map<std::string, JobResult> ended;
  std::map<std::string, std::vector<WorkersReplaced>> replaced;  // all of them
  std::vector<std::string> asked, not_replaced;                  // the nodes, in order
  std::vector<std::string> standby_asked;                        // the spares, in order
  std::map<std::string, bool> able;
  std::map<std::string, bool> goes_on_without;  // LeaveAnswered::round_goes_on
  std::map<std::string, std::int64_t> resumed;
  std::map<std::string, RoundChanged> changed;
  int proposals = 0;

 private:
  void forget(const std::string& node) {
    alive_.erase(node);
    proposed.erase(node);
    started.erase(node);
  }
  void record(const std::string& node, std::size_t, const JoinRefused& what) { refused[node] = what.text; }
  void record(const std::string& node, std::size_t, const NodeDropped& what) {
    dropped[node] = what.text;
    forget(node);
  }
  void record(const std::string& node, std::size_t, const RendezvousWaiting& what) { waiting[node] = what.text; }
  void record(const std::string& node, std::size_t index, RoundProposed what) {
    started.erase(node);
    what.round.self = static_cast<int>(index);
    proposed[node] = std::move(what);
  }
  void record(const std::string& node, std::size_t index, RoundStarted what) {
    what.round.self = static_cast<int>(index);
    started[node] = std::move(what.round);
  }
  void record(const std::string& node, std::size_t index, RoundChanged what) {
    what.round.self = static_cast<int>(index);
    if (what.joins(what.round.self)) proposed.erase(node);
    started[node] = what.round;
    changed[node] = std::move(what);
  }
  void record(const std::string& node, std::size_t, const StandbyAsked&) { standby_asked.push_back(node); }
  void record(const std::string& node, std::size_t, const RecoveryAsked&) { asked.push_back(node); }
  void record(const std::string& node, std::size_t, const WorkersReplaced& what) { replaced[node].push_back(what); }
  void record(const std::string& node, std::size_t, const ReplacementRefused&) { not_replaced.push_back(node); }
  void record(const std::string& node, std::size_t, const WorkersRecoverable& what) { able[node] = what.able; }
  void record(const std::string& node, std::size_t, const RoundResumed& what) { resumed[node] = what.generation; }
  void record(const std::string& node, std::size_t, const LeaveAnswered& what) {
    leave_answers[node] = what.refusal;
    goes_on_without[node] = what.round_goes_on;
    if (what.refusal.empty()) forget(node);
  }
  void record(const std::string& node, std::size_t, const JobEnded& what) { ended[node] = what.result; }

  void deliver(const MembershipMessages& messages) {
    for (const auto& message : messages) {
      proposals += std::holds_alternative<RoundProposed>(message.what);
      for (std::size_t i = 0; i < message.to.size(); ++i)
        std::visit([&](const auto& what) { record(message.to[i], i, what); }, message.what);
    }
  }

  JobPolicy policy_;
  Membership membership_;
  Membership::Time now_{1000s};
  std::set<std::string> alive_;
};

}  // namespace ddprun::testing
