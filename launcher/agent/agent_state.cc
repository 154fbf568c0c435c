#include "launcher/agent/agent_state.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "common/exit_code.h"
#include "common/host_port.h"
#include "common/signal_name.h"
#include "rendezvous/membership/membership_text.h"
#include "rendezvous/membership/node_commands.h"
#include "rendezvous/membership/worker_failure.h"

namespace ddprun {
namespace {

using Kind = Announce::Kind;

// Returns whether the decision is about the failures of this report.
bool answers(const WorkersReplaced& decided, const AgentAction& report) {
  const auto* failure = std::get_if<ReportFailure>(&report);
  return failure && std::ranges::all_of(failure->failures, [&](const WorkerFailure& own) {
           return std::ranges::any_of(decided.failures, [&](const auto& one) {
             return one.local_rank == own.local_rank && one.pid == own.pid && one.host == own.host;
           });
         });
}

PrepareRound preparation_of(const Round& round) {
  const auto& self = round.members.at(static_cast<std::size_t>(round.self));
  return {.generation = round.generation,
          .nodes = static_cast<int>(round.members.size()),
          .world_size = round.world_size,
          .serves_store = self.group_rank == 0,
          .address = self.address};
}

// Returns whether a node that has asked to leave gets no answer that is of use.
bool ends_question(const RendezvousEvent& event) {
  return std::holds_alternative<RoundProposed>(event) || std::holds_alternative<ContactBroken>(event);
}

// The last line of a node that was away when the job ended.
std::string away_text(const JobResult& result) {
  return fmt::format("this node had left the job: it ends with the job's exit code, {}", result.exit_code);
}

// The last line of a node that took part in no round of a job whose workers ran elsewhere; otherwise empty.
std::string spare_text(const JobResult& result, bool took_part) {
  const bool ran = result.success || result.exit_code == exit_preempted || !result.failures.empty();
  if (took_part || !ran) return "";
  return fmt::format("this node was a spare: none of its workers was started; it ends with the job's exit code, {}",
                     result.exit_code);
}

}  // namespace

AgentActions AgentState::on(const RendezvousEvent& event) {
  if (end_ || finished_) return {};
  if (leaves_by_ && ends_question(event)) return end_by_signal(*leaves_by_);
  return std::visit([this](const auto& e) { return on_event(e); }, event);
}

AgentActions AgentState::on_event(const RendezvousWaiting& event) {
  return {Announce{Kind::info, event.text}};
}

AgentActions AgentState::on_event(const RoundProposed& event) {
  proposed_ = preparation_of(event.round);
  forget_reports();
  AgentActions actions;
  // The reason names the root cause. A failure of this node that is neither that nor its consequence gets its own line.
  for (const auto& failure : unreported_)
    if (!failure.consequence && event.reason.find(failure_text(failure)) == std::string::npos)
      actions.push_back(Announce{Kind::warning, failure_text(failure)});
  unreported_.clear();
  if (event.round.generation > 0) actions.push_back(Announce{Kind::warning, "new round: " + event.reason});
  joining_.reset();
  if (workers_running_) return stop_workers(std::move(actions));
  actions.push_back(*proposed_);
  return actions;
}

AgentActions AgentState::on_event(const RoundStarted& event) {
  const bool expected = proposed_ && proposed_->generation == event.round.generation && !workers_running_;
  if (!expected) return {};
  proposed_.reset();
  replacements_.begin(event.round);
  recoverable_ = false;
  return start_workers(event.round);
}

AgentActions AgentState::start_workers(const Round& round) {
  current_ = round.generation;
  nodes_ = round.members.size();
  group_rank_ = round.self;
  workers_running_ = true;
  stopping_ = false;
  AgentActions actions;
  announce_store(round, actions);
  auto difference = command_difference_text(round, command_);
  if (!difference.empty() && difference != command_difference_) actions.push_back(Announce{Kind::warning, difference});
  command_difference_ = std::move(difference);
  actions.push_back(StartWorkers{round});
  return actions;
}

AgentActions AgentState::on_event(const RoundChanged& event) {
  const auto& round = event.round;
  if (event.joins(round.self)) {
    joining_ = event;
    joined_since_.reset();
    proposed_.reset();
    forget_reports();
    recoverable_ = true;  // otherwise there is no such change
    replacements_.begin(round);
    return workers_running_ ? stop_outdated_workers(round.generation) : join_round();
  }
  if (joining_) {
    replacements_.change(event);
    joined_since_ = event;
    return {};
  }
  if (gets_store_when_done(round))
    return {AnswerRecovery{round.generation, "the workers of the node that would serve the store are done"}};
  if (!trains(round.generation)) return {};
  replacements_.change(event);
  nodes_ = round.members.size();
  group_rank_ = round.self;
  AgentActions actions{
      Announce{Kind::warning, fmt::format("{}: generation {} goes on with {} and {}, and the same workers on the "
                                          "nodes that stay",
                                          event.reason, round.generation, count_text(static_cast<int>(nodes_), "node"),
                                          count_text(round.world_size, "worker"))}};
  announce_store(round, actions);
  actions.push_back(ChangeRound{event, replacements_.members()});
  return actions;
}

// The server did not know yet that this node is done. The others wait for a group in which its workers are.
bool AgentState::gets_store_when_done(const Round& round) const {
  return is_done() && current_ == round.generation && round.self == 0 && round.store() != worker_store_;
}

// The others use another store than this node's workers. SIGTERM would ask all ranks of the old group to save their
// state and stop, so these workers are killed.
AgentActions AgentState::stop_outdated_workers(std::int64_t generation) {
  if (current_ != generation || group_rank_ != 0 || std::exchange(stopping_, true)) return stop_workers({});
  return {StopWorkers{.signal_number = SIGKILL, .ends_round = true}};
}

void AgentState::announce_store(const Round& round, AgentActions& actions) {
  auto store = round.store();
  if (!worker_store_.empty() && worker_store_ != store)
    actions.push_back(Announce{Kind::info, fmt::format("the workers' store of generation {} is at {}, no longer at {}",
                                                       round.generation, store, worker_store_)});
  worker_store_ = std::move(store);
}

// No worker of an earlier round is left.
AgentActions AgentState::join_round() {
  const auto joining = *std::exchange(joining_, std::nullopt);
  auto starting = start_workers(joining.round);
  AgentActions actions{Announce{Kind::info, fmt::format("this node joins generation {}, which runs, as node {} of {}",
                                                        joining.round.generation, joining.round.self, nodes_)},
                       preparation_of(joining.round)};
  actions.insert(actions.end(), starting.begin(), starting.end());
  if (const auto since = std::exchange(joined_since_, std::nullopt)) {
    nodes_ = since->round.members.size();
    group_rank_ = since->round.self;
    actions.push_back(ChangeRound{*since, replacements_.members()});
  }
  return actions;
}

// Returns whether this node's workers of the generation run and are not being stopped.
bool AgentState::trains(std::int64_t generation) const {
  return workers_running_ && !stopping_ && !proposed_ && current_ == generation;
}

AgentActions AgentState::on_event(const WorkersRecoverable& event) {
  if (current_ == event.generation) recoverable_ = event.able;
  return {};
}

// Workers of an earlier round may still be stopping.
AgentActions AgentState::on_event(const StandbyAsked& event) {
  return {StandBy{.generation = event.generation, .world_size = event.world_size}};
}

AgentActions AgentState::on_event(const RecoveryAsked& event) {
  return {AnswerRecovery{event.generation, trains(event.generation) ? "" : "the workers of its node 0 have stopped"}};
}

AgentActions AgentState::on_event(const WorkersReplaced& event) {
  if (joining_) replacements_.follow(event);
  if (!trains(event.generation)) return {};
  unreported_.clear();
  std::erase_if(reports_, [&](const auto& report) { return answers(event, report); });
  return replace_as(replacements_.follow(event), event.failures);
}

AgentActions AgentState::on_event(const ReplacementRefused& event) {
  AgentActions actions;
  if (kept_ && current_ == event.generation)
    actions.push_back(Announce{Kind::warning, fmt::format("generation {} does not go on at the rendezvous server: its "
                                                          "workers are stopped",
                                                          *current_)});
  if (current_ == event.generation) forget_reports();
  if (!trains(event.generation)) return actions;
  return stop_workers(std::move(actions));
}

AgentActions AgentState::on_event(const JobEnded& event) {
  const auto& result = event.result;
  AgentActions actions;
  unreported_.clear();
  const bool requested = result.exit_code == exit_preempted || result.exit_code == exit_for_signal(SIGTERM);
  stop_requested_ = requested && result.failures.empty();
  if (!result.success) actions.push_back(Announce{stop_requested_ ? Kind::warning : Kind::error, result.reason});
  return end_with(
      {.exit_code = result.exit_code,
       .failures = result.failures,
       .last_line = away_ ? away_text(result) : spare_text(result, current_.has_value() || proposed_.has_value())},
      std::move(actions), SIGTERM);
}

AgentActions AgentState::on_leave_request(const std::string& who, Absence absence) {
  if (end_ || finished_ || !current_ || !trains(*current_)) return {};
  leaves_for_ = who;
  absence_ = absence;
  return {AskToLeave{who}};
}

AgentActions AgentState::on_event(const LeaveAnswered& event) {
  const auto by = std::exchange(leaves_by_, std::nullopt);
  const int signal = by.value_or(SIGTERM);
  if (!event.refusal.empty()) return by ? end_by_signal(signal) : AgentActions();
  proposed_.reset();
  joining_.reset();
  auto actions = announce_failures();
  if (absence_ == Absence::for_good) {
    stop_requested_ = true;
    actions.push_back(Announce{Kind::warning, fmt::format("{}: this node leaves the job and ends", leaves_for_)});
    if (event.round_goes_on) release_workers(actions);
    // A rendezvous server in this process may have to tell the others that the round goes on.
    leaves_after_workers_ = event.round_goes_on && workers_running_;
    if (!leaves_after_workers_) actions.push_back(LeaveJob{leaves_for_});
    return end_with({.exit_code = exit_for_signal(signal)}, std::move(actions), event.round_goes_on ? SIGTERM : signal);
  }
  away_ = true;
  actions.push_back(
      Announce{Kind::warning, fmt::format("{}: this node leaves the job until it joins again", leaves_for_)});
  if (event.round_goes_on) release_workers(actions);
  return workers_running_ ? stop_workers(std::move(actions)) : actions;
}

AgentActions AgentState::on_join_request(const std::string& who) {
  if (end_ || finished_ || !away_ || workers_running_) return {};
  away_ = false;
  return {Announce{Kind::info, fmt::format("{}: this node joins the job again", who)}, JoinAgain{}};
}

// They have ended only if they are done: those that were stopped wait for another round.
bool AgentState::trains_on(const ContactBroken& event) const {
  const bool others_wait = nodes_ > 1 || event.server_ended;  // rather than begin a round without this node
  return event.lease.count() > 0 && recoverable_ && others_wait && current_ && !joining_ && !proposed_ && !stopping_ &&
         !away_ && !end_ && (workers_running_ || is_done());
}

// Other nodes may continue without this one once the lease has ended, so its workers must stop then. One that is away
// joins again with the session.
AgentActions AgentState::on_event(const ContactBroken& event) {
  if (trains_on(event)) {
    kept_ = true;
    return {
        Announce{Kind::warning, fmt::format("{}; the workers of generation {} train on for at most {:.1f} s without it",
                                            event.text, *current_, std::chrono::duration<double>(event.lease).count())},
        KeepRound{.done = !workers_running_}};
  }
  forget_reports();
  away_ = false;
  proposed_.reset();
  joining_.reset();
  auto actions = announce_failures();
  actions.push_back(Announce{Kind::warning, event.text});
  return workers_running_ ? stop_workers(std::move(actions)) : actions;
}

// The server that has gone may not have decided on what was reported to it.
AgentActions AgentState::on_event(const RoundResumed& event) {
  if (!kept_ || current_ != event.generation) return {};
  kept_ = false;
  AgentActions actions{
      Announce{Kind::info,
               fmt::format("the rendezvous server is back: generation {} goes on, with the same workers", *current_)}};
  actions.insert(actions.end(), reports_.begin(), reports_.end());
  return actions;
}

// Returns the report as an action, or nothing while there is no rendezvous, which gets it when the round goes on.
AgentActions AgentState::report(AgentAction what) {
  reports_.push_back(what);
  return kept_ ? AgentActions() : AgentActions{std::move(what)};
}

// A server that does not know that these workers have ended would go on without a lost node.
AgentActions AgentState::report_end(AgentAction what) {
  auto actions = report(std::move(what));
  if (kept_) actions.push_back(KeepRound{.done = true});
  return actions;
}

// The round does not go on.
void AgentState::forget_reports() {
  kept_ = false;
  reports_.clear();
}

AgentActions AgentState::on_event(const ContactLost& event) {
  auto actions = announce_failures();
  actions.push_back(Announce{Kind::error, event.error.what()});
  return end_with({.exit_code = exit_for(event.error.code())}, std::move(actions), SIGTERM);
}

AgentActions AgentState::on_workers_failed(std::vector<WorkerFailure> failures,
                                           const std::vector<WorkerCondition>& workers) {
  if (away_) return {};  // they are being stopped, and the job goes on without them
  if (!end_ && current_ && !proposed_ && !stopping_) {
    std::stable_sort(failures.begin(), failures.end(), is_likelier_cause);
    if (const auto survivors = replacements_.survivors(failures, workers); survivors != Survivors::stopped) {
      unreported_.insert(unreported_.end(), failures.begin(), failures.end());
      return report(ReportFailure{*current_, std::move(failures), survivors});
    }
    const auto refusal = replacements_.refusal(failures, workers);
    if (refusal.reason.empty()) return replace_workers(failures);
    const int code = exit_code_of(failures.front());
    if (replacements_.budget_is_used()) return end_by_failures(std::move(failures), replacements_.budget_text(), code);
    if (replacements_.scope() == RestartScope::failed && !failures.front().usage_error &&
        replacements_.restarts() < replacements_.max_restarts())
      return end_by_failures(std::move(failures), refusal.reason + " (--restart=failed)",
                             refusal.by_workers ? exit_usage : code);
  }
  AgentActions actions{StopWorkers{.signal_number = SIGTERM, .ends_round = true}};
  stopping_ = true;
  if (end_ || !current_) return actions;
  unreported_.insert(unreported_.end(), failures.begin(), failures.end());
  actions.push_back(kept_ ? AgentAction(GiveUpRound{}) : AgentAction(ReportFailure{*current_, std::move(failures)}));
  forget_reports();
  return actions;
}

// The other workers keep their processes.
AgentActions AgentState::replace_workers(const std::vector<WorkerFailure>& failures) {
  return replace_as(replacements_.replace(failures), failures);
}

AgentActions AgentState::replace_as(ReplaceWorkers replace, const std::vector<WorkerFailure>& failures) const {
  AgentActions actions;
  const int before = replace.restarts_used - static_cast<int>(failures.size());
  for (int i = 0; i < static_cast<int>(failures.size()); ++i) {
    const auto& failure = failures[static_cast<std::size_t>(i)];
    actions.push_back(
        Announce{Kind::warning, fmt::format("{}; restart {} of {}: a replacement for this rank alone",
                                            failure_text(failure), before + i + 1, replacements_.max_restarts())});
  }
  actions.push_back(std::move(replace));
  return actions;
}

// Ends the job without the rendezvous' verdict, since the rendezvous does not know of replacements.
AgentActions AgentState::end_by_failures(std::vector<WorkerFailure> failures, const std::string& why, int exit_code) {
  const auto reason = fmt::format("{}; {}", failure_text(failures.front()), why);
  return end_with({.exit_code = exit_code, .failures = std::move(failures)},
                  {Announce{Kind::error, reason}, LeaveJob{reason}}, SIGTERM);
}

AgentActions AgentState::on_workers_succeeded() {
  workers_running_ = false;
  if (end_ || away_ || joining_) return on_workers_stopped();
  // A round that was proposed meanwhile can be prepared at once.
  if (proposed_) return {*proposed_};
  return report_end(ReportSuccess{current_.value_or(0)});
}

AgentActions AgentState::on_workers_preempted() {
  workers_running_ = false;
  if (end_ || away_ || joining_) return on_workers_stopped(true);
  if (proposed_) return {*proposed_};
  return report_end(ReportPreempted{current_.value_or(0)});
}

AgentActions AgentState::on_workers_stopped(bool preempted) {
  workers_running_ = false;
  stopping_ = false;
  if (end_) {
    finished_ = true;
    if (preempted && stop_requested_) end_->exit_code = exit_preempted;
    AgentActions actions;
    if (leaves_after_workers_) actions.push_back(LeaveJob{leaves_for_});
    actions.push_back(*end_);
    return actions;
  }
  if (joining_) return join_round();
  if (proposed_) return {*proposed_};
  return {};
}

AgentActions AgentState::on_signal(int signal_number, bool preempts) {
  if (finished_) return {};
  const auto name = signal_name(signal_number);
  if (std::exchange(signalled_, true)) {
    auto actions = leaves_by_ ? end_by_signal(signal_number) : AgentActions();
    actions.emplace_back(KillWorkers{});
    return actions;
  }
  if (end_)
    return {
        Announce{Kind::warning, fmt::format("{}: the workers are already stopping; a second signal kills them", name)}};
  if (preempts || !may_leave_in_order()) return end_by_signal(signal_number);
  leaves_by_ = signal_number;
  leaves_for_ = "stopped by " + name;
  absence_ = Absence::for_good;
  return {AskToLeave{leaves_for_}};
}

// Returns whether the round may go on without this node. Its workers get no signal then: they leave after a step.
bool AgentState::may_leave_in_order() const {
  return recoverable_ && nodes_ > 1 && current_ && trains(*current_) && !kept_;
}

AgentActions AgentState::end_by_signal(int signal_number) {
  const auto name = signal_name(signal_number);
  leaves_by_.reset();
  stop_requested_ = true;
  auto actions = announce_failures();
  actions.push_back(Announce{Kind::warning, fmt::format("stopped by {}", name)});
  actions.push_back(LeaveJob{"stopped by " + name});
  return end_with({.exit_code = exit_for_signal(signal_number)}, std::move(actions), signal_number);
}

AgentActions AgentState::on_stop_request(const std::string& who) {
  if (end_ || finished_) return {};
  return {RequestStop{who}};
}

AgentActions AgentState::announce_failures() {
  AgentActions actions;
  for (const auto& failure : std::exchange(unreported_, {}))
    actions.push_back(Announce{Kind::error, failure_text(failure)});
  return actions;
}

AgentActions AgentState::on_fault(const Error& error) {
  if (end_ || finished_) return {};
  // The other nodes get the reason at once, since a rendezvous server in this process waits for them at the end.
  auto actions = announce_failures();
  actions.push_back(Announce{Kind::error, error.what()});
  actions.push_back(LeaveJob{error.what()});
  return end_with({.exit_code = exit_for(error.code())}, std::move(actions), SIGTERM);
}

AgentActions AgentState::stop_workers(AgentActions actions) {
  if (!std::exchange(stopping_, true)) actions.push_back(StopWorkers{.signal_number = SIGTERM, .ends_round = true});
  return actions;
}

// The workers end by themselves: the others' process group goes on without them.
void AgentState::release_workers(AgentActions& actions) {
  if (workers_running_ && !std::exchange(stopping_, true)) actions.push_back(ReleaseWorkers{});
}

AgentActions AgentState::end_with(Finish end, AgentActions actions, int stop_signal) {
  end_ = std::move(end);
  if (!workers_running_) {
    finished_ = true;
    actions.push_back(*end_);
  } else if (!stopping_ || stop_signal != SIGTERM) {
    stopping_ = true;
    actions.push_back(StopWorkers{.signal_number = stop_signal});
  }
  return actions;
}

}  // namespace ddprun
