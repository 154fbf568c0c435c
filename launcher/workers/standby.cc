#include "launcher/workers/standby.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "common/error.h"
#include "common/log.h"
#include "launcher/placement/affinity.h"
#include "rendezvous/recovery/standby_socket.h"

namespace ddprun {
namespace {

constexpr int most_losses = 3;

// An OpenMP runtime reads these at its start, and binds its threads to some of the processors of that time.
constexpr std::array thread_bindings{"OMP_PROC_BIND", "OMP_PLACES", "GOMP_CPU_AFFINITY", "KMP_AFFINITY"};

// Binds all threads of a process. Returns whether it could.
bool bind(pid_t process, const CpuList& cpus) {
  if (cpus.empty()) return true;
  const CpuMask mask(cpus);
  std::error_code failure;
  const std::filesystem::directory_iterator end;
  std::filesystem::directory_iterator thread(fmt::format("/proc/{}/task", process), failure);
  for (; !failure && thread != end; thread.increment(failure)) {
    const int error = mask.apply_to(std::atoi(thread->path().filename().c_str()));
    if (error != 0 && error != ESRCH) return false;
  }
  return !failure;
}

}  // namespace

bool suits_all_workers(const WorkerCommand& command, const WorkerEnvSpec& exported, const Environment& environment) {
  if (!exported.recovery || exported.pmi || exported.virtual_local_rank) return false;
  const auto& threads = exported.omp_threads;
  if (std::ranges::adjacent_find(threads, std::ranges::not_equal_to()) != threads.end()) return false;
  if (std::ranges::any_of(thread_bindings, [&](const char* name) { return environment.get(name).has_value(); }))
    return false;
  return arguments_for(command, 0) == command.arguments;
}

void Standby::begin_round() {
  kill();
  losses_ = 0;
}

void Standby::start(ProcessSpec spec,
                    const std::function<std::span<const std::string>(int descriptor)>& environment) try {
  if (process_ || losses_ >= most_losses) return;
  auto sockets = make_standby_sockets();
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  if (!nothing) throw make_error(Errc::io, "cannot open /dev/null: {}", errno_text(errno));
  spec.environment = environment(sockets.process.get());
  spec.in = spec.out = nothing.get();
  spec.err = log::enabled(log::Level::debug) ? STDERR_FILENO : nothing.get();
  spec.inherited[0] = sockets.process.get();
  process_.emplace(Process{.started = start_process(spec, guardian_), .socket = std::move(sockets.agent)});
  guardian_.confirm_groups();
  log::debug("process {} stands by for a worker that is lost", process_->started.pid);
} catch (const Error& e) {
  ++losses_;
  log::debug("no process stands by for a worker that is lost: {}", e.what());
}

bool Standby::ready() {
  if (!process_ || process_->stopped || process_->killed) return false;
  process_->ready = process_->ready || take_ready_report(process_->socket.get());
  return process_->ready;
}

std::optional<StartedProcess> Standby::adopt(const ProcessSpec& worker) {
  if (!ready()) return std::nullopt;
  const std::array standard{worker.in < 0 ? STDIN_FILENO : worker.in, worker.out < 0 ? STDOUT_FILENO : worker.out,
                            worker.err < 0 ? STDERR_FILENO : worker.err};
  if (!bind(process_->started.pid, worker.cpus) ||
      !send_adoption(process_->socket.get(), worker.environment, standard)) {
    ++losses_;
    kill();
    return std::nullopt;
  }
  log::debug("process {}, which stood by, takes the place of a lost worker", process_->started.pid);
  auto adopted = std::move(process_->started);
  process_.reset();
  return adopted;
}

bool Standby::apply(const ProcessChange& change) {
  if (!process_ || change.exit.pid != process_->started.pid) return false;
  process_->stopped = change.kind == ProcessChange::Kind::stopped;
  if (change.kind != ProcessChange::Kind::ended) return false;
  const bool by_itself = !process_->killed;
  guardian_.remove_groups(std::array{change.exit.pid});
  process_.reset();
  if (!by_itself) return false;
  ++losses_;
  log::debug("process {}, which stood by, has ended", change.exit.pid);
  return change.exit.signal_number == SIGKILL;
}

void Standby::kill() {
  if (!process_ || std::exchange(process_->killed, true)) return;
  const pid_t pid = process_->started.pid;
  if (::kill(-pid, SIGKILL) != 0) ::kill(pid, SIGKILL);  // it does not lead its group before its exec
}

}  // namespace ddprun
