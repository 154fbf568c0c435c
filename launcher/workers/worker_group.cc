#include "ddprun/launcher/workers/worker_group.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <optional>
#include <set>
#include <sys/wait.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "ddprun/common/error.h"
#include "ddprun/common/exit_code.h"
#include "ddprun/common/log.h"
#include "ddprun/common/signal_name.h"
#include "ddprun/launcher/mpi/pmi_server.h"
#include "ddprun/launcher/report/failure_report.h"
#include "ddprun/launcher/report/memory_evidence.h"
#include "ddprun/launcher/workers/descendants.h"
#include "ddprun/launcher/workers/exec_failure.h"
#include "ddprun/launcher/workers/nonfatal_signal.h"
#include "ddprun/launcher/workers/sleep_watch.h"
#include "ddprun/launcher/workers/worker_process.h"
#include "ddprun/rendezvous/trust/token_descriptor.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// Grace period of child processes that remain after all workers have exited.
constexpr milliseconds leftover_grace{2000};
// Between two rounds of SIGKILL, which are repeated because a process can fork while it is being killed.
constexpr milliseconds kill_interval{200};
constexpr int max_kill_rounds = 50;
// A worker can notice a peer's death and exit before the kernel reports the peer's end to this process: when all
// failures are consequences, the wait for their cause.
constexpr milliseconds cause_timeout{500};

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

struct Worker {
  int local_rank = 0;
  StartedProcess process;
  std::string error_file;
  std::optional<ProcessExit> exit;
  int stopped_by = 0;  // the signal that stopped it, until it is continued
  bool failed = false;
  int sent_signal = 0;  // by this agent, with the reason
  std::string sent_reason;
  std::optional<int> aborted;  // it called MPI_Abort with this exit code
  std::string complaint;       // what is wrong although it exited with 0
  std::string blocked;         // why it has failed although it runs

  bool ended_well() const { return exit->success() && complaint.empty() && !aborted; }
  pid_t group() const { return process.pid; }
  WorkerReport report() const {
    using State = WorkerReport::State;
    return {.local_rank = local_rank,
            .pid = process.pid,
            .state = exit              ? State::ended
                     : stopped_by != 0 ? State::stopped
                                       : State::running,
            .exit_code = exit ? exit->code : 0,
            .signal_number = exit ? exit->signal_number : stopped_by};
  }
};

bool was_preempted(const Worker& worker) {
  return worker.exit && worker.exit->signal_number == 0 && worker.exit->code == exit_preempted;
}

}  // namespace

struct WorkerGroup::Impl {
  enum class Phase { idle, running, stopping, leftovers };

  Impl(boost::asio::io_context& loop_, Guardian& guardian_, Console& console_, const LogFolder& logs_, GroupSpec spec_,
       Handlers handlers_)
      : loop(loop_),
        guardian(guardian_),
        console(console_),
        logs(logs_),
        spec(std::move(spec_)),
        handlers(std::move(handlers_)),
        timer(loop_),
        sleep_watch(spec.uninterruptible_timeout),
        sleep_timer(loop_),
        memory(MemoryEvidence::Sources::of_this_process()) {
    // Children that this process had before it executed ddprun (exec from a shell) do not belong to the job.
    reap_children(guardian);
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) == 0)
      for (const pid_t pid : living_children()) foreign.insert(pid);
    std::erase_if(foreign, [this](pid_t pid) { return guardian.owns(pid); });
    if (spec.credentials) token = make_token_descriptor(*spec.credentials);
    spec.exported.token_descriptor = token.get();
  }

  boost::asio::io_context& loop;
  Guardian& guardian;
  Console& console;
  const LogFolder& logs;
  GroupSpec spec;
  Handlers handlers;
  boost::asio::steady_timer timer;
  SleepWatch sleep_watch;
  boost::asio::steady_timer sleep_timer;  // runs with a limit and workers alone
  MemoryEvidence memory;
  std::set<pid_t> foreign;  // children that do not belong to the job, except the guardian

  Phase phase = Phase::idle;
  Round round;
  std::vector<Worker> workers;
  std::set<pid_t> leftovers_signalled;
  int stop_signal = SIGTERM;
  int kills = 0;
  bool awaiting_cause = false;
  std::shared_ptr<OutputRouter> output;
  UniqueFd token;                  // for the workers; empty: they get none
  std::unique_ptr<PmiServer> pmi;  // of the latest round, if its workers are to be MPI processes

  const RoundMember& self() const { return round.members.at(static_cast<std::size_t>(round.self)); }
  Worker make_worker(int local_rank, WorkerEnvironments& environments, std::uint64_t replacement = 0);
  void replace(Worker& worker, std::uint64_t generation);
  void apply(const std::vector<ProcessChange>& changes);
  void report_changes(const std::vector<WorkerReport>& changed) const;
  void end_aborted(int local_rank, int exit_code);
  void warn_of_frozen() const;
  std::vector<WorkerFailure> failures();
  std::string cause_of_end(const Worker& worker, ProcessExit& exit);
  WorkerFailure failure_of(const Worker& worker, std::int64_t noticed_us);
  bool all_preempted() const;
  std::vector<WorkerStatus> status() const;
  bool all_exited() const;
  bool nothing_left() const;
  std::vector<pid_t> leftover_children() const;
  void signal_groups(int signal_number) const;
  void signal_leftovers();
  void arm(milliseconds after);
  void kill_everything();
  void advance();
  void finish();
  void report_failures(bool cause_may_follow);
  void watch_sleeps();
  void look_at_sleeps();
};

Worker WorkerGroup::Impl::make_worker(int local_rank, WorkerEnvironments& environments, std::uint64_t replacement) {
  const auto folder = logs.worker_folder(round.generation, local_rank, replacement);
  Worker worker{.local_rank = local_rank,
                .error_file = logs.error_file(round.generation, local_rank, replacement).string()};
  const auto descriptors = output->open(local_rank, folder);
  const auto input = open_input(spec.input, self().first_rank + local_rank);
  const int pmi_end = pmi ? pmi->worker_end(local_rank) : -1;
  worker.process = start_process({.executable = spec.command.executable,
                                  .arguments = arguments_for(spec.command, local_rank),
                                  .environment = environments.of(local_rank, worker.error_file, pmi_end),
                                  .in = input.get(),
                                  .out = descriptors.out,
                                  .err = descriptors.err,
                                  .inherited = {pmi_end, token.get()},
                                  .cpus = spec.placement.workers.at(static_cast<std::size_t>(local_rank)).cpus,
                                  .descriptors = spec.descriptors},
                                 guardian);
  output->started();
  if (pmi) pmi->started(local_rank);
  return worker;
}

void WorkerGroup::Impl::replace(Worker& worker, std::uint64_t generation) {
  ::kill(-worker.group(), SIGKILL);
  guardian.remove_groups(std::array{worker.group()});
  auto exported = spec.exported;
  exported.recovery = generation;
  WorkerEnvironments environments(spec.environment, exported, round);
  worker = make_worker(worker.local_rank, environments, generation);
  guardian.confirm_groups();
  awaiting_cause = false;
  report_changes({worker.report()});
}

// What is known beyond exit code and signal. A process whose exec failed has no exit code of its own.
std::string WorkerGroup::Impl::cause_of_end(const Worker& worker, ProcessExit& exit) {
  if (!worker.blocked.empty()) return worker.blocked;
  if (const int error = exec_error(worker.process); error != 0) {
    exit.code = exit_fault;
    return exec_failure_text(spec.command.executable, error);
  }
  if (worker.aborted) {
    const int code = *worker.aborted & 0xff;
    exit = {.pid = exit.pid, .code = code == 0 ? exit_fault : code};
    return fmt::format("it called MPI_Abort with exit code {}", *worker.aborted);
  }
  if (!worker.complaint.empty()) {
    exit.code = exit_fault;
    return worker.complaint;
  }
  if (exit.signal_number != 0 && exit.signal_number == worker.sent_signal) return worker.sent_reason;
  const bool killed = exit.signal_number == SIGKILL || exit.code == exit_for_signal(SIGKILL);
  return cause_of(exit, killed ? memory.about(exit.pid, exit.peak_kib) : MemoryEvidence::Finding{});
}

WorkerFailure WorkerGroup::Impl::failure_of(const Worker& worker, std::int64_t noticed_us) {
  auto exit = worker.exit.value_or(ProcessExit{.pid = worker.process.pid, .code = exit_fault});
  const auto cause = cause_of_end(worker, exit);
  auto failure = describe_failure({.rank = self().first_rank + worker.local_rank,
                                   .local_rank = worker.local_rank,
                                   .group_rank = self().group_rank,
                                   .host = spec.host,
                                   .error_file = worker.error_file,
                                   .last_lines = output->last_lines(worker.local_rank),
                                   .cause = cause},
                                  exit, noticed_us);
  if (!logs.enabled()) failure.error_file.clear();  // it is removed with the temporary folder
  return failure;
}

// The workers that have failed, the root cause first. All are stamped with the same time.
std::vector<WorkerFailure> WorkerGroup::Impl::failures() {
  std::vector<WorkerFailure> failures;
  const auto noticed = now_us();
  for (auto& worker : workers) {
    if ((!worker.exit && worker.blocked.empty()) || was_preempted(worker)) continue;
    if (pmi && worker.exit && worker.exit->success()) worker.complaint = pmi->complaint(worker.local_rank);
    if (worker.exit && worker.ended_well()) continue;
    worker.failed = true;
    failures.push_back(failure_of(worker, noticed));
  }
  root_cause_first(failures);
  return failures;
}

void WorkerGroup::Impl::apply(const std::vector<ProcessChange>& changes) {
  std::vector<WorkerReport> changed;
  for (const auto& change : changes) {
    const auto worker =
        std::find_if(workers.begin(), workers.end(), [&](const Worker& w) { return w.process.pid == change.exit.pid; });
    if (worker == workers.end()) continue;
    if (change.kind == ProcessChange::Kind::ended) worker->exit = change.exit;
    worker->stopped_by = change.kind == ProcessChange::Kind::stopped ? change.exit.signal_number : 0;
    changed.push_back(worker->report());
  }
  report_changes(changed);
}

void WorkerGroup::Impl::report_changes(const std::vector<WorkerReport>& changed) const {
  if (!changed.empty() && handlers.changed) handlers.changed(changed);
}

// MPICH's processes wait for that: they do not end themselves.
void WorkerGroup::Impl::end_aborted(int local_rank, int exit_code) {
  for (auto& worker : workers) {
    if (worker.local_rank != local_rank || worker.aborted) continue;
    worker.aborted = exit_code;
    if (!worker.exit) ::kill(worker.process.pid, SIGKILL);
  }
}

// A stopped worker may be what its peers failed on.
void WorkerGroup::Impl::warn_of_frozen() const {
  for (const auto& worker : workers)
    if (!worker.exit && worker.stopped_by != 0)
      log::warn("rank {} (local rank {}, pid {}) on host {} is frozen: stopped by {}",
                self().first_rank + worker.local_rank, worker.local_rank, worker.process.pid, spec.host,
                signal_name(worker.stopped_by));
}

bool WorkerGroup::Impl::all_preempted() const {
  const auto ended_well = [](const Worker& w) { return w.exit && (w.exit->success() || was_preempted(w)); };
  return std::all_of(workers.begin(), workers.end(), ended_well) &&
         std::any_of(workers.begin(), workers.end(), was_preempted);
}

std::vector<WorkerStatus> WorkerGroup::Impl::status() const {
  std::vector<WorkerStatus> result;
  for (const auto& worker : workers)
    result.push_back({.local_rank = worker.local_rank,
                      .pid = worker.process.pid,
                      .exit = worker.exit,
                      .failed = worker.failed,
                      .error_file = worker.error_file});
  return result;
}

bool WorkerGroup::Impl::all_exited() const {
  return std::all_of(workers.begin(), workers.end(), [](const Worker& w) { return w.exit.has_value(); });
}

std::vector<pid_t> WorkerGroup::Impl::leftover_children() const {
  auto children = living_children();
  std::erase_if(children, [&](pid_t pid) { return guardian.owns(pid) || foreign.contains(pid); });
  return children;
}

// One system call in the usual case, in which waitid() reports no child at all. Otherwise /proc is searched, since
// waitid() also reports foreign children and a restarted guardian.
bool WorkerGroup::Impl::nothing_left() const {
  if (!all_exited()) return false;
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return true;
  return (!foreign.empty() || guardian.restarted()) && leftover_children().empty();
}

void WorkerGroup::Impl::signal_groups(int signal_number) const {
  for (const auto& worker : workers) {
    // A worker that was just forked does not lead its group yet; it receives the signal itself and acts on it before
    // its exec.
    if (::kill(-worker.group(), signal_number) != 0 && !worker.exit) ::kill(worker.process.pid, signal_number);
    // A stopped process (SIGSTOP) cannot act on the signal.
    if (signal_number != SIGKILL) ::kill(-worker.group(), SIGCONT);
  }
}

// Signals each orphan of the workers, which this process has adopted, once.
void WorkerGroup::Impl::signal_leftovers() {
  for (const pid_t pid : leftover_children())
    if (leftovers_signalled.insert(pid).second) ::kill(pid, stop_signal);
}

void WorkerGroup::Impl::arm(milliseconds after) {
  timer.expires_after(after);
  timer.async_wait([this](boost::system::error_code failure) {
    if (!failure) kill_everything();
  });
}

void WorkerGroup::Impl::kill_everything() {
  if (phase != Phase::stopping && phase != Phase::leftovers) return;
  signal_groups(SIGKILL);
  const auto left = all_exited() ? leftover_children() : std::vector<pid_t>{};
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
  if (++kills > max_kill_rounds) {
    const auto workers_left = std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return !w.exit; });
    log::error("{} processes of the job cannot be killed (blocked in the kernel?); they remain",
               left.size() + static_cast<std::size_t>(workers_left));
    return finish();
  }
  arm(kill_interval);
}

// Takes the next step once all workers have exited.
void WorkerGroup::Impl::advance() {
  if (phase == Phase::idle || !all_exited()) return;
  if (nothing_left()) return finish();
  if (phase == Phase::running) {
    phase = Phase::leftovers;
    stop_signal = SIGTERM;
    signal_groups(SIGTERM);
    arm(leftover_grace);
  }
  signal_leftovers();
}

void WorkerGroup::Impl::finish() {
  const bool was_stopped = phase == Phase::stopping;
  const bool preempted = all_preempted();
  phase = Phase::idle;
  timer.cancel();
  sleep_timer.cancel();
  sleep_watch.clear();
  std::vector<pid_t> groups;
  for (const auto& worker : workers) groups.push_back(worker.group());
  guardian.remove_groups(groups);
  if (output) output->finish();
  output.reset();
  const auto ended = status();
  workers.clear();
  if (pmi && !was_stopped) pmi->ended();
  handlers.ended(ended);
  if (was_stopped) return handlers.stopped(preempted);
  preempted ? handlers.preempted() : handlers.succeeded();
}

void WorkerGroup::Impl::report_failures(bool cause_may_follow) {
  if (phase != Phase::running) return;
  auto found = failures();
  const bool only_consequences = std::all_of(found.begin(), found.end(), [](const auto& f) { return f.consequence; });
  if (found.empty()) return;
  if (!only_consequences || !cause_may_follow || all_exited()) return handlers.failed(std::move(found));
  if (std::exchange(awaiting_cause, true)) return;
  timer.expires_after(cause_timeout);
  timer.async_wait([this](boost::system::error_code failure) {
    if (!failure) report_failures(false);
  });
}

void WorkerGroup::Impl::watch_sleeps() {
  if (spec.uninterruptible_timeout == milliseconds(0)) return;
  sleep_timer.expires_after(sleep_watch.interval());
  sleep_timer.async_wait([this](boost::system::error_code failure) {
    if (failure || phase != Phase::running) return;
    look_at_sleeps();
    watch_sleeps();
  });
}

void WorkerGroup::Impl::look_at_sleeps() {
  const auto now = std::chrono::steady_clock::now();
  for (auto& worker : workers) {
    if (worker.exit) continue;
    const pid_t pid = worker.process.pid;
    const auto found = sleep_watch.observe(pid, thread_sleeps(pid), now);
    if (!found) continue;
    const auto channel = wait_channel(pid, found->thread);
    worker.blocked = fmt::format(
        "its thread {} has been in uninterruptible sleep for {:.1f} s{}: a file system or a device does not answer",
        found->thread, std::chrono::duration<double>(found->slept).count(),
        channel.empty() ? "" : fmt::format(" (wait channel {})", channel));
  }
  report_failures(false);
}

WorkerGroup::WorkerGroup(boost::asio::io_context& loop, Guardian& guardian, Console& console, const LogFolder& logs,
                         GroupSpec spec, Handlers handlers)
    : impl_(std::make_unique<Impl>(loop, guardian, console, logs, std::move(spec), std::move(handlers))) {}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::start(const Round& round) {
  auto& self = *impl_;
  if (self.phase != Impl::Phase::idle) throw make_error(Errc::internal, "workers of an earlier round still run");
  self.phase = Impl::Phase::running;
  self.round = round;
  self.leftovers_signalled.clear();
  self.kills = 0;
  self.awaiting_cause = false;
  self.output = std::make_shared<OutputRouter>(
      self.loop, self.console, self.spec.output,
      OutputAttempt{.first_rank = self.self().first_rank, .folder = self.logs.attempt_folder(round.generation)});
  self.memory.begin();
  self.pmi.reset();
  if (self.spec.exported.pmi)
    self.pmi = std::make_unique<PmiServer>(
        self.loop, self.round,
        PmiServer::Handlers{.waiting = [&self] { self.report_failures(true); },
                            .aborted = [&self](int local_rank, int code) { self.end_aborted(local_rank, code); }});
  WorkerEnvironments environments(self.spec.environment, self.spec.exported, self.round);
  for (int local_rank = 0; local_rank < self.self().nproc; ++local_rank)
    self.workers.push_back(self.make_worker(local_rank, environments));
  self.guardian.confirm_groups();
  self.watch_sleeps();
  self.report_changes(reports());
}

void WorkerGroup::replace(int local_rank, std::uint64_t generation) {
  const auto worker = std::ranges::find(impl_->workers, local_rank, &Worker::local_rank);
  if (worker == impl_->workers.end() || !worker->exit)
    throw make_error(Errc::internal, "the worker of local rank {} still runs", local_rank);
  impl_->replace(*worker, generation);
}

void WorkerGroup::stop(int signal_number, milliseconds grace) {
  auto& self = *impl_;
  if (self.phase == Impl::Phase::idle) return;
  self.stop_signal = signal_number;
  if (self.phase != Impl::Phase::stopping) self.warn_of_frozen();
  self.signal_groups(signal_number);
  if (self.phase != Impl::Phase::stopping) {
    self.phase = Impl::Phase::stopping;
    self.arm(grace);
  }
  self.advance();
}

void WorkerGroup::kill() {
  if (impl_->phase == Impl::Phase::stopping || impl_->phase == Impl::Phase::leftovers) impl_->kill_everything();
}

void WorkerGroup::notify(int signal_number) {
  std::size_t without_handler = 0;
  for (const auto& worker : impl_->workers)
    if (!send_nonfatal_signal(worker.group(), signal_number) && !worker.exit) ++without_handler;
  if (without_handler > 0)
    log::warn("{} was not passed to {} of {} workers: they have no handler for it and it would end them",
              signal_name(signal_number), without_handler, impl_->workers.size());
}

void WorkerGroup::note_signal(pid_t worker, int signal_number, const std::string& reason) {
  for (auto& w : impl_->workers) {
    if (w.process.pid != worker) continue;
    w.sent_signal = signal_number;
    w.sent_reason = reason;
  }
}

std::vector<WorkerStatus> WorkerGroup::workers() const {
  return impl_->status();
}

void WorkerGroup::window_changed() {
  if (!impl_->output || !impl_->output->window_changed()) return;
  for (const auto& worker : impl_->workers) ::kill(-worker.group(), SIGWINCH);
}

void WorkerGroup::reap() {
  auto& self = *impl_;
  self.apply(reap_children(self.guardian));
  self.report_failures(true);
  self.advance();
}

OutputRouter::Recent WorkerGroup::recent_output(int local_rank) const {
  return impl_->output ? impl_->output->recent(local_rank) : OutputRouter::Recent{};
}

std::vector<WorkerReport> WorkerGroup::reports() const {
  std::vector<WorkerReport> reports;
  for (const auto& worker : impl_->workers) reports.push_back(worker.report());
  return reports;
}

void WorkerGroup::resume_output() {
  if (impl_->output) impl_->output->resume();
}

}  // namespace ddprun
