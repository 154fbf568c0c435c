#include "launcher/agent/agent.h"

#include <algorithm>
#include <csignal>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <unistd.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/signal_set.hpp>
#include <boost/asio/steady_timer.hpp>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/pipe.h"
#include "common/printable.h"
#include "common/signal_name.h"
#include "common/version.h"
#include "launcher/agent/agent_state.h"
#include "launcher/agent/descriptor_limit.h"
#include "launcher/agent/job_end.h"
#include "launcher/agent/node_usage.h"
#include "launcher/agent/own_record.h"
#include "launcher/agent/requested_signals.h"
#include "launcher/agent/spare_processes.h"
#include "launcher/agent/store_hint.h"
#include "launcher/agent/training_watch.h"
#include "launcher/agent/workers_store.h"
#include "launcher/attach/attached_clients.h"
#include "launcher/attach/remote_signals.h"
#include "launcher/chaos/fault_injector.h"
#include "launcher/chaos/link_cut.h"
#include "launcher/control/control_socket.h"
#include "launcher/dashboard/recovery_summary.h"
#include "launcher/dashboard/screen_text.h"
#include "launcher/output/console.h"
#include "launcher/output/log_folder.h"
#include "launcher/output/log_through_console.h"
#include "launcher/report/event_log.h"
#include "launcher/report/failure_report.h"
#include "launcher/workers/descendants.h"
#include "launcher/workers/guardian_watch.h"
#include "launcher/workers/process_evidence.h"
#include "launcher/workers/watchdog.h"
#include "rendezvous/recovery/store_notice.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// The time that the process that serves the endpoint waits, at the end, for nodes without the job result.
constexpr milliseconds drain_timeout{10'000};
// The time that it waits after a signal: long enough to send the reason.
constexpr milliseconds signalled_drain_timeout{200};

// Returns whether nodes of the round are gone, or have come back with new workers.
bool has_lost_members(const Round& round, const RoundChanged& change) {
  return std::ranges::any_of(round.members, [&](const RoundMember& former) {
    const auto now = std::ranges::find(change.round.members, former.node_id, &RoundMember::node_id);
    return now == change.round.members.end() || change.joins(now->group_rank);
  });
}

bool ignored(int signal_number) {
  struct sigaction action {};
  return ::sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

// A store or rendezvous server that has accepted no client for this long, or for the join timeout, ends the job.
constexpr milliseconds accept_timeout{30'000};

// The interval at which the rendezvous server gets the progress of the training.
constexpr milliseconds training_interval{2'000};

class Agent {
 public:
  Agent(const AgentSpec& spec, Guardian& guardian)
      : spec_(spec),
        guardian_(guardian),
        console_(
            STDOUT_FILENO, STDERR_FILENO, [this] { asio::post(loop_, [this] { group_.resume_output(); }); },
            dumb_terminal(spec)),
        log_through_console_(console_),
        events_(open_event_log(spec.events, event_facts(spec), console_)),
        logs_(make_log_folder(spec)),
        watchdog_(make_watchdog(spec)),
        training_(loop_, spec.node.nproc),
        store_notice_(make_store_notice(spec)),
        attached_(loop_, {.refusal = [this](int rank) { return no_such_rank(rank); },
                          .unseen = [this](int rank) { return group_.unseen_streams(local_rank_of(rank)); },
                          .relay = [this](const RelayMessage& message) { return relay(message); }}),
        remote_signals_([this](const RelayMessage& message) { return relay(message); }),
        watch_(loop_, watch_spec(spec)),
        signals_(loop_),
        guardian_watch_(loop_, guardian),
        group_(loop_, guardian, console_, logs_, group_spec(spec),
               {.ended = [this](const auto& workers) { on_workers_ended(workers); },
                .failed =
                    [this](auto failures) {
                      watch_.failed(failures);
                      act(state_.on_workers_failed(std::move(failures), conditions()));
                    },
                .succeeded = [this] { act(state_.on_workers_succeeded()); },
                .preempted = [this] { act(state_.on_workers_preempted()); },
                .stopped = [this](bool preempted) { act(state_.on_workers_stopped(preempted)); },
                .changed = [this](const auto& workers) { report_workers(workers); }}),
        spare_(group_, spec.group.host, spec.node.nproc),
        hint_(loop_,
              {.running = [this] { return running_ranks(); },
               .waits = [this](int rank, pid_t pid) { log::warn("{}", store_hint_text(rank, pid, round_->store())); }}),
        state_(spec.node.command, spec.restarts),
        store_(loop_, spec) {
    const auto& error_files = logs_.enabled() ? logs_.root() : logs_.temporary();
    if (!error_files.empty()) guardian_.set_marker("TORCHELASTIC_ERROR_FILE=" + error_files.string() + "/");
    if (!logs_.temporary().empty() && !keeps_logs(spec, logs_)) guardian_.remove_with_job(logs_.temporary());
    if (watchdog_) guardian_.remove_with_job(watchdog_->pipe());
    become_subreaper();
    catch_sigpipe();
  }

  int run() {
    watch_signals();
    check_scheduler_file(spec_.group.environment);
    if (logs_.enabled() && spec_.keep_logs) log::info("logs: {}", logs_.root().string());
    try {
      backend_ = spec_.open_rendezvous(loop_);
      watch_.ask_others_at(server_at(backend_->endpoint(), spec_.trust.credentials));
      backend_->on_server_failure(accept_bound(), [this](const Error& e) { act(state_.on_fault(e)); });
      open_control_socket();
      backend_->rendezvous().on_relay({.received = [this](const RelayMessage& message) { on_relayed(message); },
                                       .connected =
                                           [this] {
                                             remote_signals_.session_began();
                                             attached_.session_began();
                                           }});
      report_training();
      if (events_) events_->joining();
      join();
    } catch (const Error& e) {
      act(state_.on_fault(e));
    }
    loop_.run();
    return end();
  }

 private:
  static LogFolder make_log_folder(const AgentSpec& spec) {
    using Temporary = LogFolder::Temporary;
    const bool temporary = spec.log_dir.empty() || spec.log_dir == "/dev/null";
    return {spec.log_dir, spec.policy.run_id,
            temporary ? temporary_folder(spec.group.environment) : std::filesystem::path(),
            spec.keep_logs ? Temporary::kept : Temporary::removable};
  }

  static std::unique_ptr<StoreNotice> make_store_notice(const AgentSpec& spec) try {
    return decides_with_server(spec) ? std::make_unique<StoreNotice>() : nullptr;
  } catch (const Error& error) {
    log::warn("workers are restarted if the node of their store is lost: {}", error.what());
    return nullptr;
  }

  std::unique_ptr<Watchdog> make_watchdog(const AgentSpec& spec) {
    if (!spec.watchdog) return nullptr;
    auto pipe = std::filesystem::path(spec.watchdog_pipe);
    const auto name = fmt::format("watchdog_timer_{}", ::getpid());
    if (pipe.empty()) pipe = (logs_.enabled() ? logs_.root() : temporary_folder(spec.group.environment)) / name;
    return std::make_unique<Watchdog>(loop_, pipe,
                                      [this](const ExpiredTimer& timer) { act_on_expired(timer, group_); });
  }

  dashboard::WatchSpec watch_spec(const AgentSpec& spec) {
    return {.facts = {.run_id = spec.policy.run_id,
                      .program = spec.policy.program,
                      .host = spec.group.host,
                      .version = std::string(project_version()),
                      .min_nodes = spec.policy.min_nodes,
                      .max_nodes = spec.policy.max_nodes,
                      .max_restarts = spec.policy.max_restarts},
            .journal = keeps_logs(spec, logs_) ? logs_.root() : std::filesystem::path(),
            .dashboard = spec.dashboard,
            .curve = shows_curve(),
            .training = [this] { return training_.records(group_.reports()); },
            .evidence = [this](int local_rank) { return evidence_of(local_rank); },
            .usage = [this] { return usage_.read(std::chrono::steady_clock::now()); },
            .store_operations = [this] { return store_.operations(); },
            .own_status = [this] { return record().own; }};
  }

  bool shows_curve() const { return spec_.loss_curve.value_or(console_.window(Console::Stream::err).has_value()); }

  // Prints the curve after the workers' output.
  void show_curve() {
    constexpr int columns_of_file = 100;
    const auto window = console_.window(Console::Stream::err);
    if (shows_curve())
      console_.write(Console::Stream::err,
                     dashboard::loss_text(watch_.view(), window ? window->columns : columns_of_file));
  }

  dashboard::RankEvidence evidence_of(int local_rank) const {
    const auto output = group_.recent_output(local_rank);
    dashboard::RankEvidence evidence{.out = output.out, .err = output.err, .process = {}};
    for (const auto& worker : group_.workers())
      if (worker.local_rank == local_rank && !worker.exit)
        for (auto& fact : process_facts(worker.pid)) evidence.process.emplace_back(fact.name, fact.value);
    return evidence;
  }

  GroupSpec group_spec(const AgentSpec& spec) {
    auto group = spec.group;
    if (watchdog_) group.exported.timer_file = watchdog_->pipe().string();
    group.exported.training_memory = training_.address();
    if (store_notice_) group.exported.store_notice = store_notice_->address();
    group.output.seen = [this](int rank, Console::Stream stream, std::string_view bytes) {
      attached_.feed(rank, stream, bytes);
    };
    return group;
  }

  std::map<int, pid_t> running_ranks() const {
    std::map<int, pid_t> ranks;
    for (const auto& worker : group_.workers())
      if (!worker.exit) ranks[self().first_rank + worker.local_rank] = worker.pid;
    return ranks;
  }

  void join() {
    backend_->rendezvous().join(spec_.node, spec_.policy,
                                [this](const RendezvousEvent& event) { on_rendezvous(event); });
  }

  void on_rendezvous(const RendezvousEvent& event) {
    if (events_) events_->on(event);
    const auto* broken = std::get_if<ContactBroken>(&event);
    if (broken && state_.trains_on(*broken))
      watch_.note("fault", broken->text);
    else
      watch_.on(event);
    if (broken) attached_.session_lost(broken->text);
    if (const auto* able = std::get_if<WorkersRecoverable>(&event))
      log::debug("generation {}: all workers can recover: {}", able->generation, able->able);
    if (const auto* lost = std::get_if<ContactLost>(&event)) attached_.session_lost(lost->error.what());
    act(state_.on(event));
    if (std::holds_alternative<RoundResumed>(event)) report_again();
    if (const auto* answer = std::get_if<LeaveAnswered>(&event)) on_leave_answered(*answer);
  }

  void on_leave_answered(const LeaveAnswered& answer) {
    if (!faults_) return;
    if (answer.refusal.empty())
      faults_->left();
    else
      faults_->stays(answer.refusal);
  }

  void on_workers_ended(const std::vector<WorkerStatus>& workers) {
    hint_.stop();
    if (events_) events_->workers_ended(workers);
    if (watchdog_) watchdog_->clear();
  }

  static EventFacts event_facts(const AgentSpec& spec) {
    return {.run_id = spec.policy.run_id,
            .role = spec.group.exported.role,
            .host = spec.group.host,
            .backend = spec.backend,
            .program = spec.group.command.title,
            .pid = ::getpid()};
  }

  // terminfo(5)'s name of a terminal without cursor movements, such as an editor's window.
  static bool dumb_terminal(const AgentSpec& spec) { return spec.group.environment.get("TERM") == "dumb"; }

  void watch_signals() {
    std::set<int> watched{SIGCHLD, SIGUSR1, SIGUSR2, SIGWINCH};
    watched.insert(spec_.end_signals.begin(), spec_.end_signals.end());
    if (ignored(SIGHUP)) watched.erase(SIGHUP);  // started by nohup
    for (const int signal : watched) signals_.add(signal);
    wait_for_signal();
  }

  void wait_for_signal() {
    signals_.async_wait([this](boost::system::error_code failure, int signal) {
      if (failure) return;
      if (ends_job(signal)) {
        if (finish_) return stop_serving(signal);
        if (!signal_) signal_ = signal;
        act(state_.on_signal(signal));
      } else if (signal == SIGCHLD) {
        group_.reap();
      } else if (signal == SIGWINCH) {
        group_.window_changed();
      } else {
        group_.notify(signal);
      }
      wait_for_signal();
    });
  }

  bool ends_job(int signal) const {
    return std::find(spec_.end_signals.begin(), spec_.end_signals.end(), signal) != spec_.end_signals.end();
  }

  // An action may cause further events at once; their actions are queued.
  void act(AgentActions actions) {
    for (auto& action : actions) queue_.push_back(std::move(action));
    if (acting_) return;
    acting_ = true;
    while (!queue_.empty()) {
      const auto action = std::move(queue_.front());
      queue_.pop_front();
      try {
        std::visit([this](const auto& a) { execute(a); }, action);
      } catch (const Error& e) {
        for (auto& next : state_.on_fault(e)) queue_.push_back(std::move(next));
      }
    }
    acting_ = false;
  }

  void execute(const PrepareRound& action) {
    const bool serves_workers =
        spec_.policy.agent_store && (backend_->serves_workers() ? backend_->is_host() : action.serves_store);
    check_descriptor_limit(action, serves_workers ? action.world_size : 0);
    backend_->rendezvous().ready(action.generation, provide_store(action));
  }

  void check_descriptor_limit(const PrepareRound& action, int connections_of_workers) const {
    ddprun::check_descriptor_limit(spec_, {.connections_of_workers = connections_of_workers,
                                           .sessions = backend_->is_host() ? action.nodes - 1 : 0});
  }

  // Returns what Rendezvous::ready() takes. A store that stands by for another node's ends nothing if it fails.
  std::uint16_t provide_store(const PrepareRound& action) try {
    if (!action.serves_store && !(store_notice_ && spec_.policy.agent_store)) return 0;
    if (!action.serves_store) check_descriptor_limit(action, action.world_size);
    return store_.provide(action.address, backend_->serves_workers(), accept_bound(), [this](const Error& e) {
      if (round_ && store_.serves(*round_)) act(state_.on_fault(e));
    });
  } catch (const Error& error) {
    if (action.serves_store) throw;
    log::warn("this node does not serve the workers' store if the node that does is lost: {}", error.what());
    return 0;
  }

  // Workers of the job may be replaced, and its nodes change, while the others run, by the rendezvous server's
  // decision.
  static bool decides_with_server(const AgentSpec& spec) {
    return spec.restarts.single_workers && spec.restarts.asks_server;
  }

  milliseconds accept_bound() const { return std::min(spec_.policy.join_timeout, accept_timeout); }

  void execute(const StartWorkers& action) {
    try {
      round_ = action.round;
      spare_.hand_over();
      training_.clear();
      remove_token_file();
      store_.answer_for(*round_, backend_->serves_workers());
      if (store_notice_) store_notice_->set_place("", 0, 0);
      group_.start(action.round, store_socket());
      attached_.round_started();
      if (spec_.policy.agent_store) hint_.start();
      store_.probe(*round_, backend_->serves_workers());
      if (events_) events_->workers_started(group_.workers());
      await_recoverable();
      inject_faults();
    } catch (const Error& e) {
      act(state_.on_workers_failed({not_started(0, e)}));
    }
  }

  // They begin with the first workers.
  void inject_faults() {
    if (!spec_.faults) return;
    if (faults_) return faults_->joined();
    faults_ = std::make_unique<FaultInjector>(
        loop_, *spec_.faults, self().group_rank,
        FaultInjector::Node{.running = [this] { return fault_targets(); },
                            .send =
                                [this](int local_rank, int signal_number) {
                                  return send_requested_signal(group_, local_rank, signal_number, "--chaos");
                                },
                            .leave = [this] { leave_by_fault(); },
                            .join = [this] { act(state_.on_join_request("--chaos")); }});
  }

  // The other nodes need the server that this process runs, which goes on only while this process does.
  void leave_by_fault() {
    const bool returns = spec_.faults->has(FaultKind::join);
    if (!returns && backend_->is_host()) return faults_->stays("it runs the rendezvous server");
    act(state_.on_leave_request("--chaos", returns ? Absence::for_a_time : Absence::for_good));
  }

  std::vector<FaultTarget> fault_targets() const {
    std::vector<FaultTarget> targets;
    if (finish_) return targets;
    for (const auto& worker : group_.workers())
      if (worker.started && !worker.exit) targets.push_back({worker.local_rank, worker.pid});
    return targets;
  }

  // All nodes have read the file. A later job of the same Slurm step must not find it.
  void remove_token_file() {
    if (spec_.trust.file && static_cast<int>(round_->members.size()) == spec_.policy.max_nodes)
      spec_.trust.file->remove();
  }

  // The failure of a worker for which there is no process.
  WorkerFailure not_started(int local_rank, const Error& error) const {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return {.rank = self().first_rank + local_rank,
            .local_rank = local_rank,
            .group_rank = self().group_rank,
            .host = spec_.group.host,
            .exit_code = exit_fault,
            .time_us = std::chrono::duration_cast<std::chrono::microseconds>(now).count(),
            .message = error.what(),
            .cause = error.what()};
  }

  // The conditions of this node's workers, where single workers can be replaced; otherwise none.
  std::vector<WorkerCondition> conditions() const {
    std::vector<WorkerCondition> conditions;
    if (!round_ || !spec_.restarts.single_workers) return conditions;
    const auto able = store_.able(*round_, state_.members());
    for (const auto& worker : group_.workers())
      conditions.push_back(
          {.able = !able.empty() && able.at(static_cast<std::size_t>(self().first_rank + worker.local_rank)),
           .running = !worker.exit,
           .started = worker.started});
    return conditions;
  }

  void execute(const AnswerRecovery& action) {
    auto refusal = action.refusal;
    if (refusal.empty()) {
      const auto able = store_.able(*round_, state_.members());
      const auto unable = std::find(able.begin(), able.end(), false);
      if (able.empty()) refusal = "no rank has announced that it can recover";
      if (unable != able.end())
        refusal = fmt::format("rank {} has not announced that it can recover", unable - able.begin());
    }
    backend_->rendezvous().answer_recovery(action.generation, refusal);
  }

  // All nodes of the round learn whether its workers may run on without the rendezvous, and the server whether they may
  // in a round of other nodes.
  void report_recoverable() {
    const auto now = recoverable();
    if (!now || reported_recoverable_ == now || (!reported_recoverable_ && !now->second)) return;
    send_recoverable(*now);
  }

  // Until they can, a change of the nodes restarts all workers.
  void await_recoverable(milliseconds interval = milliseconds(50)) {
    report_recoverable();
    const auto now = recoverable();
    if (!now || now->second) return;
    recoverable_timer_.expires_after(interval);
    recoverable_timer_.async_wait([this, interval](boost::system::error_code failure) {
      if (!failure) await_recoverable(std::min(2 * interval, training_interval));
    });
  }

  // Returns the generation, and whether its workers can recover; none if this agent does not report it.
  std::optional<std::pair<std::int64_t, bool>> recoverable() {
    if (!decides_with_server(spec_) || !round_ || !store_.serves(*round_)) return std::nullopt;
    const auto able = store_.able(*round_, state_.members());
    return std::pair(round_->generation, std::ranges::find(able, false) == able.end());
  }

  void send_recoverable(std::pair<std::int64_t, bool> now) {
    reported_recoverable_ = now;
    backend_->rendezvous().report_recoverable(now.first, now.second);
  }

  // A server that was started while the workers ran knows nothing of them, and the other nodes what they knew before.
  void report_again() {
    if (const auto now = recoverable()) send_recoverable(*now);
    report_workers(training_.with_training(group_.reports()));
  }

  void execute(const KeepRound& action) { backend_->rendezvous().keep_round(action.done); }
  void execute(const GiveUpRound&) { backend_->rendezvous().give_up_round(); }

  // The workers of a node that has come join after the start of their process, those of a node that has gone leave
  // after a step, or have ended.
  void execute(const ChangeRound& action) {
    const int former_rank = self().first_rank;
    const bool has_lost = has_lost_members(*round_, action.change);
    const bool store_moves = round_->store() != action.change.round.store();
    round_ = action.change.round;
    group_.change_round(*round_, store_socket());
    if (store_moves) follow_store();
    attached_.round_changed(self().first_rank - former_rank);
    if (!store_.serves(*round_)) return;
    if (store_.is_over(*round_)) {
      // The others of a lost rank wait for it at the end of the run.
      if (has_lost) backend_->rendezvous().answer_recovery(round_->generation, "the run is over at some ranks");
      return;
    }
    const auto able = store_.able(*round_, action.members);
    if (const auto unable = std::find(able.begin(), able.end(), false); unable != able.end())
      return backend_->rendezvous().answer_recovery(round_->generation,
                                                    fmt::format("rank {} cannot recover", unable - able.begin()));
    store_.announce(action.change, action.members, has_lost);
  }

  // The node of the workers' store is lost, and group rank 0 of the round serves another one.
  void follow_store() {
    if (store_.serves(*round_)) store_.take_over();
    store_.answer_for(*round_, backend_->serves_workers());
    store_.probe(*round_, backend_->serves_workers());
    if (store_notice_) store_notice_->set_place(round_->master_addr, round_->master_port, round_->group_generation);
    await_recoverable();
  }

  std::string store_socket() const { return store_.serves(*round_) ? control_->path().string() : ""; }

  // The living workers wait for the members of the next generation, in which the replacements join.
  void execute(const ReplaceWorkers& action) {
    round_->restarts_used = action.restarts_used;
    watch_.workers_replaced(action.local_ranks, action.restarts_used);
    if (events_) events_->workers_replaced(some_workers(action.local_ranks), action.restarts_used);
    for (const int local_rank : action.local_ranks) {
      try {
        group_.replace(local_rank, action.generation);
      } catch (const Error& e) {
        auto workers = conditions();
        workers.at(static_cast<std::size_t>(local_rank)).started = false;
        return act(state_.on_workers_failed({not_started(local_rank, e)}, workers));
      }
    }
    if (!spec_.restarts.asks_server) replaced_ += static_cast<int>(action.local_ranks.size());
    if (!action.local_ranks.empty()) attached_.worker_replaced();
    store_.announce(*round_, action);
    if (events_) events_->workers_started(some_workers(action.local_ranks));
  }

  std::vector<WorkerStatus> some_workers(const std::vector<int>& local_ranks) const {
    auto workers = group_.workers();
    std::erase_if(workers, [&](const WorkerStatus& worker) {
      return std::find(local_ranks.begin(), local_ranks.end(), worker.local_rank) == local_ranks.end();
    });
    return workers;
  }

  void execute(const StandBy& action) {
    spare_.keep(action);
    report_spare();
  }
  void execute(const StopWorkers& action) {
    if (action.ends_round && round_ && spec_.restarts.single_workers) store_.announce_end(*round_);
    group_.stop(action.signal_number, spec_.grace);
  }
  void execute(const ReleaseWorkers&) { group_.release(spec_.grace); }
  void execute(const KillWorkers&) { group_.kill(); }
  void execute(const ReportSuccess& action) {
    attached_.flush();
    backend_->rendezvous().report_success(action.generation);
  }
  void execute(const ReportPreempted& action) {
    attached_.flush();
    backend_->rendezvous().report_preempted(action.generation);
  }
  void execute(const RequestStop& action) {
    if (backend_) backend_->rendezvous().request_stop(action.who);
  }
  void execute(const ReportFailure& action) {
    attached_.flush();
    backend_->rendezvous().report_failure(action.generation, action.failures, action.survivors);
  }
  void execute(const LeaveJob& action) {
    watch_.leaving(action.reason);
    if (backend_) backend_->withdraw(action.reason);
  }
  void execute(const AskToLeave& action) { backend_->rendezvous().ask_to_leave(action.reason); }
  void execute(const JoinAgain&) {
    if (events_) events_->joining();
    join();
  }
  void execute(const Announce& action) {
    switch (action.kind) {
      case Announce::Kind::info:
        return log::info("{}", action.text);
      case Announce::Kind::warning:
        return log::warn("{}", action.text);
      case Announce::Kind::error:
        return log::error("{}", action.text);
    }
  }

  void open_control_socket() {
    control_ = std::make_unique<ControlSocket>(
        loop_, spec_.group.environment,
        ControlSocket::Handlers{
            .status = [this] { return to_json(record()); },
            .view = [this] { return watch_.snapshot(); },
            .stop = [this](const std::string& who) { act(state_.on_stop_request(who)); },
            .signal = [this](int rank, int number, const std::string& who,
                             const auto& reply) { signal_rank(rank, number, who, reply); },
            .attach = [this](int rank, UniqueFd c) { attached_.attach(rank, std::move(c)); },
            .store = [this](std::uint16_t port, UniqueFd connection,
                            const std::string& sent) { store_.adopt(port, std::move(connection), sent); }});
    if (!control_->path().empty()) guardian_.remove_with_job(control_->path());
  }

  const RoundMember& self() const { return round_->members.at(static_cast<std::size_t>(round_->self)); }
  int local_rank_of(int rank) const { return rank - self().first_rank; }

  // Returns why a rank's worker is not one of this node; empty if it is.
  std::string no_such_rank(int rank) const {
    if (!round_) return "the job's workers have not been started";
    const int local_rank = local_rank_of(rank);
    return local_rank >= 0 && local_rank < self().nproc ? "" : fmt::format("rank {} is not on this node", rank);
  }

  // Returns why the signal was not sent; empty if it was.
  std::string signal_own_rank(int rank, int signal_number, const std::string& requester) {
    const auto refusal = no_such_rank(rank);
    return refusal.empty() ? send_requested_signal(group_, local_rank_of(rank), signal_number, requester) : refusal;
  }

  void signal_rank(int rank, int signal_number, const std::string& requester, const ControlSocket::SignalReply& reply) {
    if (no_such_rank(rank).empty()) return reply(signal_own_rank(rank, signal_number, requester));
    remote_signals_.ask(rank, signal_number, requester, reply);
  }

  bool relays() const { return backend_ && backend_->rendezvous().relays(); }

  // Sends a message to the agent of another node. Returns why it cannot be sent; empty if it was.
  std::string relay(const RelayMessage& message) {
    if (!relays()) return "the agents of this job have no connection to each other";
    return backend_->rendezvous().relay(message) ? "" : "this agent has no connection to the rendezvous server now";
  }

  void on_relayed(const RelayMessage& message) {
    if (const auto* asked = std::get_if<SignalRank>(&message))
      relay(SignalAnswer{asked->number, signal_own_rank(asked->rank, asked->signal_number, printable(asked->who))});
    else if (const auto* answer = std::get_if<SignalAnswer>(&message))
      remote_signals_.answered(*answer);
    else
      attached_.received(message);
  }

  AgentRecord record() const {
    auto record =
        own_record(spec_, backend_ ? backend_->endpoint() : "", round_, training_.with_training(group_.reports()));
    record.relays = relays();
    return record;
  }

  // Reports workers to the rendezvous for ddprun status.
  void report_workers(const std::vector<WorkerReport>& changed) {
    watch_.changed(changed);
    report_node({.workers = changed, .replaced = replaced_});
  }

  void report_node(const NodeReport& report) {
    if (backend_ && round_) backend_->rendezvous().report_node(round_->generation, report);
  }

  // Reports the training for ddprun status on other hosts, and for ddprun dashboard; on this host status asks the
  // agent, which then reads what is new.
  void report_training() {
    training_.every(training_interval, [this] {
      if (spare_.kept()) return report_spare();
      keep_standby();
      report_recoverable();
      report_node({.workers = training_.changed(group_.reports()),
                   .replaced = replaced_,
                   .usage = usage_.read(std::chrono::steady_clock::now()),
                   .wants_standby = wants_standby()});
    });
  }

  // Returns whether the workers want a process to stand by, for the server; none in a job without spares.
  std::optional<bool> wants_standby() const {
    if (spec_.policy.spares == 0) return std::nullopt;
    return training_.want_standby(group_.reports());
  }

  void report_spare() {
    if (const auto ready = spare_.look())
      backend_->rendezvous().report_node(round_ ? round_->generation : 0, {.workers = {}, .stands_by = ready});
  }

  // A program that knows how to stand by says so in its training record. Short jobs end before it is read.
  void keep_standby() {
    if (!round_ || round_->restarts_used >= spec_.restarts.max_restarts) return group_.keep_standby(false);
    if (training_.want_standby(group_.reports())) group_.keep_standby(true);
  }

  // Other nodes may still need the endpoint that this process serves: to receive the job result, or for another job.
  void execute(const Finish& action) {
    finish_ = action;
    spare_.hand_over();
    group_.keep_standby(false);
    faults_.reset();
    recoverable_timer_.cancel();
    attached_.finish(action.exit_code);
    if (!backend_) return loop_.stop();
    backend_->drain(signal_ ? signalled_drain_timeout : drain_timeout, [this] { loop_.stop(); });
  }

  // A signal ends that wait: as for a running job, the other nodes are notified, and a second signal ends it at once.
  void stop_serving(int signal) {
    if (!backend_ || std::exchange(signal_, signal)) return loop_.stop();
    const auto reason = "stopped by " + signal_name(signal);
    log::warn("{} while it served the rendezvous for others", reason);
    if (finish_->exit_code != exit_preempted) finish_->exit_code = exit_for_signal(signal);
    backend_->withdraw(reason);
    backend_->drain(signalled_drain_timeout, [this] { loop_.stop(); });
    wait_for_signal();
  }

  // The time by which a terminal that accepts no output may delay the end.
  milliseconds output_timeout(const Finish& finish) const {
    if (signal_) return milliseconds(1000);
    return finish.exit_code == 0 ? spec_.grace : std::min(spec_.grace, milliseconds(5000));
  }

  int end() {
    const auto finish = finish_.value_or(Finish{.exit_code = exit_fault});
    if (events_) events_->agent_ended(finish.exit_code == exit_success);
    watch_.finish(finish.exit_code);
    if (control_) control_->announce_end(watch_.snapshot());
    show_curve();
    if (round_ && round_->self == 0 && !state_.away())
      for (const auto& line : dashboard::recovery_summary(watch_.view())) log::info("{}", line);
    store_.close_connections();
    backend_.reset();
    store_.close();
    const bool failed_here =
        !finish.failures.empty() && round_ && !state_.away() && finish.failures.front().group_rank == round_->self;
    return JobEnd{spec_, guardian_, console_, logs_, output_timeout(finish), failed_here}.conclude(finish);
  }

  const AgentSpec& spec_;
  Guardian& guardian_;
  asio::io_context loop_{1};
  Console console_;
  LogThroughConsole log_through_console_;
  std::unique_ptr<EventReporter> events_;  // null: no events are reported
  LogFolder logs_;
  std::unique_ptr<Watchdog> watchdog_;  // null: not enabled
  TrainingWatch training_;
  const std::unique_ptr<StoreNotice> store_notice_;  // null: the workers' store stays where it is
  AttachedClients attached_;
  RemoteSignals remote_signals_;
  NodeUsageMeter usage_;
  dashboard::JobWatch watch_;
  asio::signal_set signals_;
  GuardianWatch guardian_watch_;
  WorkerGroup group_;
  SpareProcesses spare_;
  StoreHint hint_;
  AgentState state_;
  WorkersStore store_;
  std::unique_ptr<FaultInjector> faults_;  // null: none are injected, or not yet
  std::unique_ptr<RendezvousBackend> backend_;
  std::unique_ptr<ControlSocket> control_;
  std::optional<Round> round_;                                         // the round whose workers were started last
  std::optional<std::pair<std::int64_t, bool>> reported_recoverable_;  // the last report_recoverable()
  asio::steady_timer recoverable_timer_{loop_};
  int replaced_ = 0;  // number of workers that this node replaced by its own decision, in all rounds
  std::deque<AgentAction> queue_;
  bool acting_ = false;
  std::optional<int> signal_;
  std::optional<Finish> finish_;
};

}  // namespace

int run_agent(const AgentSpec& spec, Guardian& guardian) {
  if (spec.faults && spec.faults->has(FaultKind::cut)) check_links_can_be_cut();
  if (!spec.health_check.command.empty()) run_health_check(spec.health_check, spec.group.environment, guardian);
  check_descriptor_limit(spec, {.connections_of_workers = spec.policy.agent_store ? spec.node.nproc : 0});
  Agent agent(spec, guardian);
  return agent.run();
}

}  // namespace ddprun
