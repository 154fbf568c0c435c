#include "ddprun/launcher/workers/worker_group.h"

#include <algorithm>
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
#include "ddprun/launcher/report/failure_report.h"
#include "ddprun/launcher/workers/descendants.h"
#include "ddprun/launcher/workers/worker_process.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// For children that workers left behind when they ended by themselves.
constexpr milliseconds leftover_grace{2000};
// Between two rounds of SIGKILL; a process can fork while it is being killed.
constexpr milliseconds kill_again_after{200};
constexpr int kill_rounds = 50;

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

struct Worker {
  int local_rank = 0;
  StartedProcess process;
  std::string error_file;
  std::optional<ProcessExit> exit;

  pid_t group() const { return process.pid; }
};

}  // namespace

struct WorkerGroup::Impl {
  enum class Phase { idle, running, stopping, leftovers };

  Impl(boost::asio::io_context& loop_, const Guardian& guardian_, Console& console_, const LogFolder& logs_,
       GroupSpec spec_, Handlers handlers_)
      : loop(loop_),
        guardian(guardian_),
        console(console_),
        logs(logs_),
        spec(std::move(spec_)),
        handlers(std::move(handlers_)),
        timer(loop_) {
    // Children that this process had before it became ddprun (exec from a shell) are none of the job's.
    reap_children();
    int status = 0;
    if (::waitpid(-1, &status, WNOHANG) == 0)
      for (const pid_t pid : living_children()) foreign.insert(pid);
    foreign.insert(guardian.pid());
  }

  boost::asio::io_context& loop;
  const Guardian& guardian;
  Console& console;
  const LogFolder& logs;
  GroupSpec spec;
  Handlers handlers;
  boost::asio::steady_timer timer;
  std::set<pid_t> foreign;

  Phase phase = Phase::idle;
  Round round;
  std::vector<Worker> workers;
  std::set<pid_t> leftovers_signalled;
  int stop_signal = SIGTERM;
  int kills = 0;
  std::shared_ptr<OutputRouter> output;

  const RoundMember& self() const { return round.members.at(static_cast<std::size_t>(round.self)); }
  void start_worker(int local_rank);
  void note(const ProcessExit& exit);
  WorkerFailure failure_of(const Worker& worker, const ProcessExit& exit);
  bool all_exited() const;
  bool nothing_left() const;
  std::vector<pid_t> leftover_children() const;
  void signal_groups(int signal_number) const;
  void signal_leftovers();
  void arm(milliseconds after);
  void kill_everything();
  void advance();
  void finish();
};

void WorkerGroup::Impl::start_worker(int local_rank) {
  const auto folder = logs.worker_folder(round.generation, local_rank);
  Worker worker{.local_rank = local_rank, .error_file = folder.empty() ? "" : (folder / "error.json").string()};
  const auto descriptors = output->open(local_rank, folder);
  const auto environment = worker_environment(spec.environment, spec.exported, round, local_rank, worker.error_file);
  worker.process = start_process({.executable = spec.command.executable,
                                  .arguments = arguments_for(spec.command, local_rank),
                                  .environment = environment.entries(),
                                  .out = descriptors.out,
                                  .err = descriptors.err},
                                 guardian);
  output->started();
  workers.push_back(std::move(worker));
}

WorkerFailure WorkerGroup::Impl::failure_of(const Worker& worker, const ProcessExit& exit) {
  auto failure = describe_failure({.rank = self().first_rank + worker.local_rank,
                                   .local_rank = worker.local_rank,
                                   .group_rank = self().group_rank,
                                   .host = spec.host,
                                   .error_file = worker.error_file,
                                   .last_lines = output->last_lines(worker.local_rank)},
                                  exit, now_us());
  if (const int cause = exec_error(worker.process); cause != 0) {
    failure.exit_code = exit_fault;
    failure.message = fmt::format("cannot execute {}: {}", spec.command.executable.string(), errno_text(cause));
    log::error("{}", failure.message);
  }
  return failure;
}

void WorkerGroup::Impl::note(const ProcessExit& exit) {
  const auto found =
      std::find_if(workers.begin(), workers.end(), [&](const Worker& w) { return w.process.pid == exit.pid; });
  if (found != workers.end()) found->exit = exit;
}

bool WorkerGroup::Impl::all_exited() const {
  return std::all_of(workers.begin(), workers.end(), [](const Worker& w) { return w.exit.has_value(); });
}

std::vector<pid_t> WorkerGroup::Impl::leftover_children() const {
  auto children = living_children();
  std::erase_if(children, [&](pid_t pid) { return foreign.contains(pid); });
  return children;
}

// Usually one system call: with no foreign child, no child at all is the answer. Zombies count: they are reaped first.
bool WorkerGroup::Impl::nothing_left() const {
  if (!all_exited()) return false;
  siginfo_t info{};
  if (::waitid(P_ALL, 0, &info, WEXITED | WNOHANG | WNOWAIT) < 0 && errno == ECHILD) return true;
  return foreign.size() > 1 && leftover_children().empty();
}

void WorkerGroup::Impl::signal_groups(int signal_number) const {
  for (const auto& worker : workers) {
    // One that was forked a moment ago does not lead its group yet: it gets the signal itself, and acts on it before
    // its exec.
    if (::kill(-worker.group(), signal_number) != 0 && !worker.exit) ::kill(worker.process.pid, signal_number);
    // A process that is stopped (SIGSTOP) could not act on the signal.
    if (signal_number != SIGKILL) ::kill(-worker.group(), SIGCONT);
  }
}

// Orphans of workers, ours by adoption: each is told once to end.
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
  if (++kills > kill_rounds) {
    const auto workers_left = std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return !w.exit; });
    log::error("{} processes of the job cannot be killed (stuck in the kernel?); leaving them",
               left.size() + static_cast<std::size_t>(workers_left));
    return finish();
  }
  arm(kill_again_after);
}

// What follows from the exits so far.
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
  phase = Phase::idle;
  timer.cancel();
  for (const auto& worker : workers) guardian.remove_group(worker.group());
  if (output) output->finish();
  output.reset();
  workers.clear();
  was_stopped ? handlers.stopped() : handlers.succeeded();
}

WorkerGroup::WorkerGroup(boost::asio::io_context& loop, const Guardian& guardian, Console& console,
                         const LogFolder& logs, GroupSpec spec, Handlers handlers)
    : impl_(std::make_unique<Impl>(loop, guardian, console, logs, std::move(spec), std::move(handlers))) {}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::start(const Round& round) {
  auto& self = *impl_;
  if (self.phase != Impl::Phase::idle) throw make_error(Errc::internal, "workers of an earlier round are still there");
  self.phase = Impl::Phase::running;
  self.round = round;
  self.leftovers_signalled.clear();
  self.kills = 0;
  self.output = std::make_shared<OutputRouter>(self.loop, self.console, self.spec.output);
  for (int local_rank = 0; local_rank < self.self().nproc; ++local_rank) self.start_worker(local_rank);
}

void WorkerGroup::stop(int signal_number, milliseconds grace) {
  auto& self = *impl_;
  if (self.phase == Impl::Phase::idle) return;
  self.stop_signal = signal_number;
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

void WorkerGroup::forward(int signal_number) {
  for (const auto& worker : impl_->workers) ::kill(-worker.group(), signal_number);
}

void WorkerGroup::window_changed() {
  if (impl_->output && impl_->output->window_changed()) forward(SIGWINCH);
}

void WorkerGroup::reap() {
  auto& self = *impl_;
  const auto exits = reap_children();
  for (const auto& exit : exits) self.note(exit);
  if (self.phase == Impl::Phase::running) {
    std::vector<WorkerFailure> failures;
    for (const auto& worker : self.workers)
      if (worker.exit && !worker.exit->success()) failures.push_back(self.failure_of(worker, *worker.exit));
    root_cause_first(failures);
    if (!failures.empty()) return self.handlers.failed(std::move(failures));
  }
  self.advance();
}

void WorkerGroup::room() {
  if (impl_->output) impl_->output->room();
}

}  // namespace ddprun
