#pragma once

#include <set>
#include <string>
#include <vector>

#include <fmt/ranges.h>

#include "launcher/agent/agent_state.h"
#include "rendezvous/membership/worker_names.h"
#include "tests/support/catch.h"

// Agents without processes, and abbreviations of what they decide.
namespace ddprun::testing {

inline Round round_of(std::int64_t generation) {
  Round round;
  round.generation = generation;
  round.members = {{.node_id = "a", .host = "a", .nproc = 2}};
  round.world_size = 2;
  return round;
}

// The abbreviated name of an action; empty for an announcement.
struct ActionName {
  std::string operator()(const PrepareRound& a) const { return fmt::format("prepare {}", a.generation); }
  std::string operator()(const StartWorkers& a) const { return fmt::format("start {}", a.round.generation); }
  std::string operator()(const ReplaceWorkers& a) const {
    return fmt::format("replace {} in {}: {}", fmt::join(a.local_ranks, " "), a.generation, fmt::join(a.members, " "));
  }
  std::string operator()(const StopWorkers& a) const { return fmt::format("stop {}", a.signal_number); }
  std::string operator()(const KillWorkers&) const { return "kill"; }
  std::string operator()(const ReleaseWorkers&) const { return "release"; }
  std::string operator()(const ChangeRound& a) const {
    return fmt::format("go on as {} of {}: {}", a.change.round.self, a.change.round.members.size(),
                       fmt::join(a.members, " "));
  }
  std::string operator()(const ReportSuccess& a) const { return fmt::format("success {}", a.generation); }
  std::string operator()(const ReportPreempted& a) const { return fmt::format("preempted {}", a.generation); }
  std::string operator()(const RequestStop& a) const { return "request stop: " + a.who; }
  std::string operator()(const ReportFailure& a) const {
    const auto* others = a.survivors == Survivors::stopped ? ""
                         : a.survivors == Survivors::run   ? ", others run"
                                                           : ", run or end";
    return fmt::format("failure {} of rank {}{}", a.generation, a.failures.at(0).rank, others);
  }
  std::string operator()(const AnswerRecovery& a) const {
    return fmt::format("answer {}: '{}'", a.generation, a.refusal);
  }
  std::string operator()(const StandBy& a) const { return fmt::format("stand by {}: {}", a.generation, a.world_size); }
  std::string operator()(const KeepRound& a) const { return a.done ? "keep, done" : "keep"; }
  std::string operator()(const GiveUpRound&) const { return "give up"; }
  std::string operator()(const LeaveJob&) const { return "leave"; }
  std::string operator()(const AskToLeave& a) const { return "ask to leave: " + a.reason; }
  std::string operator()(const JoinAgain&) const { return "join again"; }
  std::string operator()(const Announce&) const { return ""; }
  std::string operator()(const Finish& a) const { return fmt::format("finish {}", a.exit_code); }
};

// Returns abbreviated actions: "prepare 0; start 0; stop 15; kill; success 0; failure 0; leave; finish 3".
inline std::string names(const AgentActions& actions) {
  std::string text;
  for (const auto& action : actions) {
    const auto name = std::visit(ActionName{}, action);
    if (!name.empty()) text += (text.empty() ? "" : "; ") + name;
  }
  return text;
}

// Returns the lines that are announced.
inline std::string announced(const AgentActions& actions) {
  std::string text;
  for (const auto& action : actions)
    if (const auto* line = std::get_if<Announce>(&action)) text += line->text + "\n";
  return text;
}

// The agent of a single node with two workers.
struct AgentFixture {
  AgentState state;

  std::string proposed(std::int64_t generation) { return names(state.on(RoundProposed{round_of(generation), "why"})); }
  std::string started(std::int64_t generation) { return names(state.on(RoundStarted{round_of(generation)})); }
  std::string ended(int code) {
    return names(state.on(JobEnded{{.success = code == 0, .exit_code = code, .reason = "r"}}));
  }
  std::string failed(int rank) { return names(state.on_workers_failed({{.rank = rank, .exit_code = 3}})); }
  std::string stopped() { return names(state.on_workers_stopped()); }
  std::string succeeded() { return names(state.on_workers_succeeded()); }
  std::string signal(int number) { return names(state.on_signal(number)); }
  std::string asks_to_leave(Absence absence) { return names(state.on_leave_request("a trial", absence)); }
  std::string may_leave(const std::string& refusal = "") { return names(state.on(LeaveAnswered{refusal})); }
  std::string joins() { return names(state.on_join_request("a trial")); }
  void run(std::int64_t generation) {
    CHECK(proposed(generation) == fmt::format("prepare {}", generation));
    CHECK(started(generation) == fmt::format("start {}", generation));
  }
};

// The agent of the second of two nodes with two workers each, in a job whose rendezvous server decides on replacements.
struct AskingFixture {
  explicit AskingFixture(RestartScope scope = RestartScope::automatic)
      : state({}, {.scope = scope, .single_workers = true, .asks_server = true, .max_restarts = 3}) {
    round = round_of(4);
    round.members.push_back({.node_id = "b", .host = "b", .group_rank = 1, .nproc = 2, .first_rank = 2});
    round.world_size = 4;
    round.self = 1;
    for (auto& member : round.members) name_workers(member, 0);
    state.on(RoundProposed{round, "why"});
    state.on(RoundStarted{round});
  }
  static WorkerFailure failure_of(int rank) {
    return {.rank = rank, .local_rank = rank % 2, .group_rank = rank / 2, .host = "h", .signal_number = 9};
  }
  std::string killed(int rank, const std::vector<WorkerCondition>& workers = std::vector<WorkerCondition>(2)) {
    return names(state.on_workers_failed({failure_of(rank)}, workers));
  }
  AgentActions replaced(const std::vector<int>& ranks, int restarts_used) {
    WorkersReplaced event{
        .generation = 4, .restarts_used = restarts_used, .failures = {}, .group_generation = ++group_generation};
    for (const int rank : ranks) event.failures.push_back(failure_of(rank));
    rename_replaced(round, event);
    return state.on(event);
  }

  // A change of the round to these nodes, as seen by node `self`.
  AgentActions changed(const std::vector<std::string>& nodes, int self, const std::vector<int>& newcomers = {}) {
    RoundChanged event{.round = round_of(4), .newcomers = newcomers, .reason = "node c was lost"};
    event.round.members.clear();
    for (const auto& node : nodes) {
      const auto rank = static_cast<int>(event.round.members.size());
      event.round.members.push_back(
          {.node_id = node, .host = node, .group_rank = rank, .nproc = 2, .first_rank = 2 * rank});
    }
    event.round.world_size = 2 * static_cast<int>(nodes.size());
    event.round.self = self;
    event.round.group_generation = ++group_generation;
    std::set<std::string> joining;
    for (const int newcomer : newcomers) joining.insert(nodes[static_cast<std::size_t>(newcomer)]);
    keep_names(event.round, round, joining);
    event.round.master_addr = store;
    round = event.round;
    return state.on(event);
  }

  AgentState state;
  Round round;        // as the server knows it
  std::string store;  // the host of its workers' store
  std::uint64_t group_generation = 0;
};

}  // namespace ddprun::testing
