#include "launcher/workers/worker_group.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <optional>

#include <boost/asio/io_context.hpp>

#include "common/error.h"
#include "common/log.h"
#include "common/signal_name.h"
#include "common/timer.h"
#include "launcher/mpi/pmi_server.h"
#include "launcher/report/failure_report.h"
#include "launcher/workers/blocked_workers.h"
#include "launcher/workers/leftovers.h"
#include "launcher/workers/nonfatal_signal.h"
#include "launcher/workers/standby_pool.h"
#include "launcher/workers/worker.h"
#include "launcher/workers/worker_failures.h"
#include "launcher/workers/worker_process.h"
#include "rendezvous/trust/token_descriptor.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

// The grace period of child processes that remain after all workers have exited.
constexpr milliseconds leftover_grace{2000};
// The time between two rounds of SIGKILL, which are repeated because a process can fork while it is being killed.
constexpr milliseconds kill_interval{200};
constexpr int max_kill_rounds = 50;
// The wait for a cause when all failures are consequences: a worker can notice a peer's death and exit before the
// kernel reports the peer's end to this process.
constexpr milliseconds cause_timeout{500};

std::int64_t now_us() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

bool has_ended_well(const Worker& worker) {
  return worker.exit && (worker.exit->success() || worker.preempted());
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
        blocked(loop_, spec.uninterruptible_timeout,
                {.running = [this] { return running(); },
                 .blocked = [this](pid_t pid, const std::string& text) { worker_with(pid)->blocked = text; },
                 .looked = [this] { report_failures(false); }}),
        memory(MemoryEvidence::Sources::of_this_process()),
        leftovers(guardian_),
        standby(guardian_) {
    if (spec.credentials) token = make_token_descriptor(*spec.credentials);
    spec.exported.token_descriptor = token.get();
  }

  boost::asio::io_context& loop;
  Guardian& guardian;
  Console& console;
  const LogFolder& logs;
  GroupSpec spec;
  Handlers handlers;
  Timer timer;
  BlockedWorkers blocked;
  MemoryEvidence memory;
  Leftovers leftovers;
  StandbyPool standby;

  Phase phase = Phase::idle;
  Round round;
  std::vector<Worker> workers;
  int stop_signal = SIGTERM;
  int kills = 0;
  bool awaiting_cause = false;
  std::shared_ptr<OutputRouter> output;
  UniqueFd token;                  // for the workers; empty: they get none
  std::unique_ptr<PmiServer> pmi;  // that of the latest round, if its workers are to be MPI processes

  const RoundMember& self() const { return round.members.at(static_cast<std::size_t>(round.self)); }
  ProcessSpec program_of(int local_rank) const;
  Worker make_worker(int local_rank, WorkerEnvironments& environments, std::uint64_t replacement = 0);
  bool may_stand_by() const;
  void start_standbys(const Round& of_round, std::size_t count);
  void replace(Worker& worker, std::uint64_t generation);
  bool apply(const std::vector<ProcessChange>& changes);
  void report_changes(const std::vector<WorkerReport>& changed) const;
  void end_aborted(int local_rank, int exit_code);
  void warn_of_frozen() const;
  std::vector<WorkerFailure> failures();
  bool any_ended_well() const;
  bool all_preempted() const;
  std::vector<WorkerStatus> status() const;
  bool all_exited() const;
  void signal_groups(int signal_number) const;
  void arm(milliseconds after);
  void kill_everything();
  void advance();
  void finish();
  void report_failures(bool cause_may_follow);
  std::vector<pid_t> running() const;
  std::vector<Worker>::iterator worker_with(pid_t pid);
};

// The program without environment and standard descriptors.
ProcessSpec WorkerGroup::Impl::program_of(int local_rank) const {
  return {.executable = spec.command.executable,
          .arguments = arguments_for(spec.command, local_rank),
          .environment = {},
          .inherited = {-1, token.get()},
          .cpus = spec.placement.workers.at(static_cast<std::size_t>(local_rank)).cpus,
          .descriptors = spec.descriptors};
}

Worker WorkerGroup::Impl::make_worker(int local_rank, WorkerEnvironments& environments, std::uint64_t replacement) {
  const auto folder = logs.worker_folder(round.generation, local_rank, replacement);
  Worker worker{.local_rank = local_rank,
                .error_file = logs.error_file(round.generation, local_rank, replacement).string()};
  const auto descriptors = output->open(local_rank, folder);
  const auto input = open_input(spec.input, self().first_rank + local_rank);
  const int pmi_end = pmi ? pmi->worker_end(local_rank) : -1;
  auto program = program_of(local_rank);
  program.environment = environments.of(local_rank, worker.error_file, pmi_end);
  program.in = input.get();
  program.out = descriptors.out;
  program.err = descriptors.err;
  program.inherited[0] = pmi_end;
  auto adopted = replacement > 0 ? standby.adopt(program) : std::nullopt;
  worker.process = adopted ? std::move(*adopted) : start_process(program, guardian);
  output->started();
  if (pmi) pmi->started(local_rank);
  return worker;
}

// Where the kernel kills whole cgroups for want of memory, one more process may end all workers.
bool WorkerGroup::Impl::may_stand_by() const {
  return suits_all_workers(spec.command, spec.exported, spec.environment) && !memory.kills_whole_cgroup();
}

// A process gets the processors of the worker with its index until it is adopted: OpenMP counts them where
// OMP_NUM_THREADS is not set.
void WorkerGroup::Impl::start_standbys(const Round& of_round, std::size_t count) {
  if (!may_stand_by()) return;
  WorkerEnvironments environments(spec.environment, spec.exported, of_round);
  const auto error_file = logs.error_file(of_round.generation, 0).string();
  standby.start(
      count, [&](std::size_t index) { return program_of(static_cast<int>(index)); },
      [&](int descriptor) { return environments.of_standby(error_file, descriptor); });
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

// The workers that have failed, the root cause first. All get the same time.
std::vector<WorkerFailure> WorkerGroup::Impl::failures() {
  std::vector<WorkerFailure> failures;
  const auto noticed = now_us();
  const FailureContext context{.first_rank = self().first_rank,
                               .group_rank = self().group_rank,
                               .host = spec.host,
                               .executable = spec.command.executable,
                               .error_files_stay = logs.enabled(),
                               .memory = memory};
  for (auto& worker : workers) {
    if (worker.reported || (!worker.exit && worker.blocked.empty()) || worker.preempted()) continue;
    if (pmi && worker.exit && worker.exit->success()) worker.complaint = pmi->complaint(worker.local_rank);
    if (worker.exit && worker.ended_well()) continue;
    worker.failed = true;
    failures.push_back(failure_of(worker, context, output->last_lines(worker.local_rank), noticed));
  }
  root_cause_first(failures);
  return failures;
}

// Returns whether the standby process was killed, and not by this one.
bool WorkerGroup::Impl::apply(const std::vector<ProcessChange>& changes) {
  std::vector<WorkerReport> changed;
  bool killed_standby = false;
  for (const auto& change : changes) {
    killed_standby |= standby.apply(change);
    const auto worker = worker_with(change.exit.pid);
    if (worker == workers.end()) continue;
    if (change.kind == ProcessChange::Kind::ended) {
      worker->exit = change.exit;
      worker->exec_error = exec_error(worker->process);
    }
    worker->stopped_by = change.kind == ProcessChange::Kind::stopped ? change.exit.signal_number : 0;
    changed.push_back(worker->report());
  }
  report_changes(changed);
  return killed_standby;
}

void WorkerGroup::Impl::report_changes(const std::vector<WorkerReport>& changed) const {
  if (!changed.empty() && handlers.changed) handlers.changed(changed);
}

// MPICH's processes wait to be killed: they do not end themselves.
void WorkerGroup::Impl::end_aborted(int local_rank, int exit_code) {
  for (auto& worker : workers) {
    if (worker.local_rank != local_rank || worker.aborted) continue;
    worker.aborted = exit_code;
    if (!worker.exit) ::kill(worker.process.pid, SIGKILL);
  }
}

// A stopped worker may be the cause of its peers' failures.
void WorkerGroup::Impl::warn_of_frozen() const {
  for (const auto& worker : workers)
    if (!worker.exit && worker.stopped_by != 0)
      log::warn("rank {} (local rank {}, pid {}) on host {} is frozen: stopped by {}",
                self().first_rank + worker.local_rank, worker.local_rank, worker.process.pid, spec.host,
                signal_name(worker.stopped_by));
}

bool WorkerGroup::Impl::any_ended_well() const {
  return std::ranges::any_of(workers, has_ended_well);
}

bool WorkerGroup::Impl::all_preempted() const {
  return std::ranges::all_of(workers, has_ended_well) &&
         std::any_of(workers.begin(), workers.end(), [](const Worker& w) { return w.preempted(); });
}

std::vector<WorkerStatus> WorkerGroup::Impl::status() const {
  std::vector<WorkerStatus> result;
  for (const auto& worker : workers) result.push_back(worker.status());
  return result;
}

bool WorkerGroup::Impl::all_exited() const {
  return std::all_of(workers.begin(), workers.end(), [](const Worker& w) { return w.exit.has_value(); });
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

void WorkerGroup::Impl::arm(milliseconds after) {
  timer.run_after(after, [this] { kill_everything(); });
}

void WorkerGroup::Impl::kill_everything() {
  if (phase != Phase::stopping && phase != Phase::leftovers) return;
  signal_groups(SIGKILL);
  const auto left = all_exited() ? leftovers.processes() : std::vector<pid_t>{};
  for (const pid_t pid : left) ::kill(pid, SIGKILL);
  if (++kills > max_kill_rounds) {
    const auto workers_left = std::count_if(workers.begin(), workers.end(), [](const Worker& w) { return !w.exit; });
    log::error("{} processes of the job cannot be killed (blocked in the kernel?); they remain",
               left.size() + static_cast<std::size_t>(workers_left));
    return finish();
  }
  arm(kill_interval);
}

// Takes the next step once all workers have exited, and none waits for a decision about its replacement.
void WorkerGroup::Impl::advance() {
  if (phase == Phase::idle || !all_exited()) return;
  if (phase == Phase::running && std::ranges::any_of(workers, &Worker::reported)) return;
  standby.kill();
  if (leftovers.none()) return finish();
  if (phase == Phase::running) {
    phase = Phase::leftovers;
    blocked.stop();
    stop_signal = SIGTERM;
    signal_groups(SIGTERM);
    arm(leftover_grace);
  }
  leftovers.signal(stop_signal);
}

void WorkerGroup::Impl::finish() {
  const bool was_stopped = phase == Phase::stopping;
  const bool preempted = all_preempted();
  phase = Phase::idle;
  timer.cancel();
  blocked.stop();
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
  if (!only_consequences || !cause_may_follow || all_exited()) {
    for (auto& worker : workers) worker.reported |= worker.failed;
    return handlers.failed(std::move(found));
  }
  if (std::exchange(awaiting_cause, true)) return;
  timer.run_after(cause_timeout, [this] { report_failures(false); });
}

std::vector<pid_t> WorkerGroup::Impl::running() const {
  std::vector<pid_t> pids;
  for (const auto& worker : workers)
    if (!worker.exit) pids.push_back(worker.process.pid);
  return pids;
}

std::vector<Worker>::iterator WorkerGroup::Impl::worker_with(pid_t pid) {
  return std::find_if(workers.begin(), workers.end(), [pid](const Worker& w) { return w.process.pid == pid; });
}

WorkerGroup::WorkerGroup(boost::asio::io_context& loop, Guardian& guardian, Console& console, const LogFolder& logs,
                         GroupSpec spec, Handlers handlers)
    : impl_(std::make_unique<Impl>(loop, guardian, console, logs, std::move(spec), std::move(handlers))) {}

WorkerGroup::~WorkerGroup() = default;

void WorkerGroup::start(const Round& round, const std::string& store_socket) {
  auto& self = *impl_;
  if (self.phase != Impl::Phase::idle) throw make_error(Errc::internal, "workers of an earlier round still run");
  self.phase = Impl::Phase::running;
  self.round = round;
  self.spec.exported.store_socket = store_socket;
  self.leftovers.begin_round();
  self.stop_signal = SIGTERM;
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
  auto exported = self.spec.exported;
  if (exported.recovery) exported.recovery = round.group_generation;
  WorkerEnvironments environments(self.spec.environment, exported, self.round);
  for (int local_rank = 0; local_rank < self.self().nproc; ++local_rank)
    self.workers.push_back(self.make_worker(local_rank, environments, round.group_generation));
  self.standby.begin_round();
  self.guardian.confirm_groups();
  self.blocked.start();
  self.report_changes(reports());
}

void WorkerGroup::change_round(const Round& round, const std::string& store_socket) {
  impl_->round = round;
  impl_->spec.exported.store_socket = store_socket;
  if (impl_->output) impl_->output->renumber(impl_->self().first_rank);
}

void WorkerGroup::replace(int local_rank, std::uint64_t generation) {
  const auto worker = std::ranges::find(impl_->workers, local_rank, &Worker::local_rank);
  if (worker == impl_->workers.end() || !worker->exit)
    throw make_error(Errc::internal, "the worker of local rank {} still runs", local_rank);
  impl_->replace(*worker, generation);
}

void WorkerGroup::keep_standby(bool is_wanted) {
  auto& self = *impl_;
  if (!is_wanted) return self.standby.kill();
  if (self.phase == Impl::Phase::running && !self.any_ended_well()) self.start_standbys(self.round, 1);
}

bool WorkerGroup::stand_by(const Round& round) {
  auto& self = *impl_;
  const auto count = self.spec.placement.workers.size();
  if (self.phase == Impl::Phase::idle) self.start_standbys(round, count);
  return self.standby.ready() >= count;
}

void WorkerGroup::stop(int signal_number, milliseconds grace) {
  auto& self = *impl_;
  if (self.phase == Impl::Phase::idle) return;
  self.stop_signal = signal_number;
  self.blocked.stop();
  self.standby.kill();
  if (self.phase != Impl::Phase::stopping) self.warn_of_frozen();
  self.signal_groups(signal_number);
  if (self.phase != Impl::Phase::stopping) {
    self.phase = Impl::Phase::stopping;
    self.arm(grace);
  }
  self.advance();
}

void WorkerGroup::release(milliseconds grace) {
  auto& self = *impl_;
  if (self.phase != Impl::Phase::running) return;
  self.blocked.stop();
  self.standby.kill();
  self.phase = Impl::Phase::stopping;
  self.arm(grace);
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

void WorkerGroup::record_signal(pid_t worker, int signal_number, const std::string& reason) {
  const auto found = impl_->worker_with(worker);
  if (found == impl_->workers.end()) return;
  found->sent_signal = signal_number;
  found->sent_reason = reason;
}

std::vector<WorkerStatus> WorkerGroup::workers() const {
  return impl_->status();
}

std::vector<UnseenStream> WorkerGroup::unseen_streams(int local_rank) const {
  return impl_->output ? impl_->output->unseen(local_rank) : std::vector<UnseenStream>{};
}

void WorkerGroup::window_changed() {
  if (!impl_->output || !impl_->output->window_changed()) return;
  for (const auto& worker : impl_->workers) ::kill(-worker.group(), SIGWINCH);
}

void WorkerGroup::reap() {
  auto& self = *impl_;
  const bool killed_standby = self.apply(reap_children(self.guardian));
  if (self.any_ended_well()) self.standby.kill();  // nobody can be replaced any more
  if (killed_standby) self.memory.leave_out_kill();
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
