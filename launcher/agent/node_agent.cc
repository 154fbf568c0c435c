#include "launcher/agent/node_agent.h"

#include <algorithm>
#include <csignal>
#include <set>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

#include "common/error.h"
#include "common/exit_code.h"
#include "common/log.h"
#include "common/pipe.h"
#include "common/signal_name.h"
#include "launcher/agent/job_end.h"
#include "launcher/agent/requested_signals.h"
#include "launcher/dashboard/recovery_summary.h"
#include "launcher/report/failure_report.h"
#include "launcher/workers/descendants.h"
#include "launcher/workers/nonfatal_signal.h"
#include "rendezvous/backend.h"

namespace ddprun {
namespace {

namespace asio = boost::asio;
using std::chrono::milliseconds;

// The time that the process that serves the endpoint waits, at the end, for nodes without the job result.
constexpr milliseconds drain_timeout{10'000};
// The time that it waits after a signal: long enough to send the reason.
constexpr milliseconds signalled_drain_timeout{200};

// A worker that waits says so again within this time, also while it asks a store that is silent.
constexpr milliseconds waiting_lasts{2'000};

bool ignored(int signal_number) {
  struct sigaction action {};
  return ::sigaction(signal_number, nullptr, &action) == 0 && action.sa_handler == SIG_IGN;
}

}  // namespace

NodeAgent::NodeAgent(const AgentSpec& spec, Guardian& guardian)
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
      store_(loop_, spec,
             [this] {
               recoverable_reports_.report();
               report_got_state();
               end_lost_workers();
             }),
      recoverable_reports_({.read = [this] { return recoverable(); },
                            .send =
                                [this](const Recoverable& now) {
                                  backend_->rendezvous().report_recoverable(now.generation, now.able);
                                }}) {
  const auto& error_files = logs_.enabled() ? logs_.root() : logs_.temporary();
  if (!error_files.empty()) guardian_.set_marker("TORCHELASTIC_ERROR_FILE=" + error_files.string() + "/");
  if (!logs_.temporary().empty() && !keeps_logs(spec, logs_)) guardian_.remove_with_job(logs_.temporary());
  if (watchdog_) guardian_.remove_with_job(watchdog_->pipe());
  become_subreaper();
  catch_sigpipe();
}

int NodeAgent::run() {
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
    backend_->rendezvous().on_silence([this] { return store_notice_ && store_notice_->is_awaited(waiting_lasts); });
    report_training();
    if (events_) events_->joining();
    join();
  } catch (const Error& e) {
    act(state_.on_fault(e));
  }
  loop_.run();
  return end();
}

LogFolder NodeAgent::make_log_folder(const AgentSpec& spec) {
  using Temporary = LogFolder::Temporary;
  const bool temporary = spec.log_dir.empty() || spec.log_dir == "/dev/null";
  return {spec.log_dir, spec.policy.run_id,
          temporary ? temporary_folder(spec.group.environment) : std::filesystem::path(),
          spec.keep_logs ? Temporary::kept : Temporary::removable};
}

std::unique_ptr<StoreNotice> NodeAgent::make_store_notice(const AgentSpec& spec) try {
  return decides_with_server(spec) ? std::make_unique<StoreNotice>() : nullptr;
} catch (const Error& error) {
  log::warn("workers are restarted if the node of their store is lost: {}", error.what());
  return nullptr;
}

std::unique_ptr<Watchdog> NodeAgent::make_watchdog(const AgentSpec& spec) {
  if (!spec.watchdog) return nullptr;
  auto pipe = std::filesystem::path(spec.watchdog_pipe);
  const auto name = fmt::format("watchdog_timer_{}", ::getpid());
  if (pipe.empty()) pipe = (logs_.enabled() ? logs_.root() : temporary_folder(spec.group.environment)) / name;
  return std::make_unique<Watchdog>(loop_, pipe, [this](const ExpiredTimer& timer) { act_on_expired(timer, group_); });
}

GroupSpec NodeAgent::group_spec(const AgentSpec& spec) {
  auto group = spec.group;
  if (watchdog_) group.exported.timer_file = watchdog_->pipe().string();
  group.exported.training_memory = training_.address();
  if (store_notice_) group.exported.store_notice = store_notice_->address();
  group.output.seen = [this](int rank, Console::Stream stream, std::string_view bytes) {
    attached_.feed(rank, stream, bytes);
  };
  return group;
}

void NodeAgent::join() {
  backend_->rendezvous().join(spec_.node, spec_.policy, [this](const RendezvousEvent& event) { on_rendezvous(event); });
}

void NodeAgent::on_rendezvous(RendezvousEvent event) {
  // The rendezvous server counts apart what this node has replaced by its own decision.
  if (auto* started = std::get_if<RoundStarted>(&event)) started->round.restarts_used += replaced_;
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

void NodeAgent::on_workers_ended(const std::vector<WorkerStatus>& workers) {
  hint_.stop();
  if (events_) events_->workers_ended(workers);
  if (watchdog_) watchdog_->clear();
}

EventFacts NodeAgent::event_facts(const AgentSpec& spec) {
  return {.run_id = spec.policy.run_id,
          .role = spec.group.exported.role,
          .host = spec.group.host,
          .backend = spec.backend,
          .program = spec.group.command.title,
          .pid = ::getpid()};
}

// terminfo(5)'s name of a terminal without cursor movements, such as an editor's window.
bool NodeAgent::dumb_terminal(const AgentSpec& spec) {
  return spec.group.environment.get("TERM") == "dumb";
}

bool NodeAgent::workers_survive(int signal) const {
  return std::ranges::any_of(group_.workers(),
                             [&](const auto& worker) { return !worker.exit && survives(worker.pid, signal); });
}

void NodeAgent::watch_signals() {
  std::set<int> watched{SIGCHLD, SIGUSR1, SIGUSR2, SIGWINCH};
  watched.insert(spec_.end_signals.begin(), spec_.end_signals.end());
  if (ignored(SIGHUP)) watched.erase(SIGHUP);  // started by nohup
  for (const int signal : watched) signals_.add(signal);
  wait_for_signal();
}

void NodeAgent::wait_for_signal() {
  signals_.async_wait([this](boost::system::error_code failure, int signal) {
    if (failure) return;
    if (ends_job(signal)) {
      if (finish_) return stop_serving(signal);
      if (!signal_) signal_ = signal;
      act(state_.on_signal(signal, workers_survive(signal)));
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

bool NodeAgent::ends_job(int signal) const {
  return std::find(spec_.end_signals.begin(), spec_.end_signals.end(), signal) != spec_.end_signals.end();
}

// An action may cause further events at once; their actions are queued.
void NodeAgent::act(AgentActions actions) {
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

void NodeAgent::execute(const StandBy& action) {
  spare_.keep(action);
  report_spare();
}

void NodeAgent::execute(const StopWorkers& action) {
  if (action.ends_round && round_ && spec_.restarts.single_workers) store_.announce_end(*round_);
  group_.stop(action.signal_number, spec_.grace);
}

void NodeAgent::execute(const ReleaseWorkers&) {
  if (round_ && spec_.restarts.single_workers) store_.announce_leave(*round_, own_members());
  group_.release(spec_.grace);
}

void NodeAgent::execute(const KillWorkers&) {
  group_.kill();
}

void NodeAgent::execute(const ReportSuccess& action) {
  attached_.flush();
  backend_->rendezvous().report_success(action.generation);
}

void NodeAgent::execute(const ReportPreempted& action) {
  attached_.flush();
  backend_->rendezvous().report_preempted(action.generation);
}

void NodeAgent::execute(const RequestStop& action) {
  if (backend_) backend_->rendezvous().request_stop(action.who);
}

void NodeAgent::execute(const ReportFailure& action) {
  attached_.flush();
  backend_->rendezvous().report_failure(action.generation, action.failures, action.survivors);
}

void NodeAgent::execute(const LeaveJob& action) {
  watch_.leaving(action.reason);
  if (backend_) backend_->withdraw(action.reason);
}

void NodeAgent::execute(const AskToLeave& action) {
  backend_->rendezvous().ask_to_leave(action.reason);
}

void NodeAgent::execute(const JoinAgain&) {
  if (events_) events_->joining();
  join();
}

void NodeAgent::execute(const Announce& action) {
  switch (action.kind) {
    case Announce::Kind::info:
      return log::info("{}", action.text);
    case Announce::Kind::warning:
      return log::warn("{}", action.text);
    case Announce::Kind::error:
      return log::error("{}", action.text);
  }
}

// Other nodes may still need the endpoint that this process serves: to receive the job result, or for another job.
void NodeAgent::execute(const Finish& action) {
  finish_ = action;
  spare_.hand_over();
  group_.keep_standby(false);
  faults_.reset();
  attached_.finish(action.exit_code);
  if (!backend_) return loop_.stop();
  backend_->drain(signal_ ? signalled_drain_timeout : drain_timeout, [this] { loop_.stop(); });
}

// A signal ends that wait: as for a running job, the other nodes are notified, and a second signal ends it at once.
void NodeAgent::stop_serving(int signal) {
  if (!backend_ || std::exchange(signal_, signal)) return loop_.stop();
  const auto reason = "stopped by " + signal_name(signal);
  log::warn("{} while it served the rendezvous for others", reason);
  if (finish_->exit_code != exit_preempted) finish_->exit_code = exit_for_signal(signal);
  backend_->withdraw(reason);
  backend_->drain(signalled_drain_timeout, [this] { loop_.stop(); });
  wait_for_signal();
}

// The time by which a terminal that accepts no output may delay the end.
std::chrono::milliseconds NodeAgent::output_timeout(const Finish& finish) const {
  if (signal_) return milliseconds(1000);
  return finish.exit_code == 0 ? spec_.grace : std::min(spec_.grace, milliseconds(5000));
}

int NodeAgent::end() {
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

}  // namespace ddprun
