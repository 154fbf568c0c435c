#include "launcher/workers/worker_process.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/process_limits.h"
#include "launcher/placement/affinity.h"

namespace ddprun {
namespace {

#ifndef CLOSE_RANGE_CLOEXEC
constexpr unsigned CLOSE_RANGE_CLOEXEC = 1U << 2;
#endif

std::vector<char*> pointers(std::span<const std::string> texts) {
  std::vector<char*> result;
  result.reserve(texts.size() + 1);
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

// All that the child needs is prepared before the fork, since other threads may hold the allocator's lock during it.
struct Child {
  const char* executable;
  char* const* arguments;
  char* const* environment;
  int in;
  int out;
  int err;
  std::array<int, 2> inherited;
  pid_t parent;
  const CpuMask& cpus;
  std::uint64_t descriptors;
  const Guardian& guardian;
  int error_pipe;

  [[noreturn]] void run() noexcept {
    int error = prepare();
    if (error == 0) {
      ::execve(executable, arguments, environment);
      error = errno;
    }
    if (::write(error_pipe, &error, sizeof(error)) < 0) ::_exit(126);
    ::_exit(127);
  }

 private:
  int prepare() noexcept {
    if (::setsid() < 0) return errno;
    if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0) return errno;
    // The parent may have died before the line above, which then has no effect.
    if (::getppid() != parent) return ESRCH;
    // A guardian that was killed is replaced by the parent, which has stored this group; the broken pipe must not
    // end this process.
    guardian.add_own_group();
    discard_broken_pipe();
    if (const int error = cpus.empty() ? 0 : cpus.apply(); error != 0) return error;
    if (in >= 0 && ::dup2(in, STDIN_FILENO) < 0) return errno;
    if (out >= 0 && ::dup2(out, STDOUT_FILENO) < 0) return errno;
    if (err >= 0 && ::dup2(err, STDERR_FILENO) < 0) return errno;
    // The call is for inherited descriptors; the program's own ones close on exec. Kernels before 5.9 lack it.
    ::syscall(SYS_close_range, 3u, ~0u, CLOSE_RANGE_CLOEXEC);
    for (const int fd : inherited)
      if (fd >= 0 && ::fcntl(fd, F_SETFD, 0) != 0) return errno;
    if (descriptors > 0) limit_descriptors();
    reset_signals();
    return 0;
  }

  void limit_descriptors() const noexcept {
    rlimit limit{};
    ::getrlimit(RLIMIT_NOFILE, &limit);
    limit.rlim_cur = descriptors;
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }

  static void discard_broken_pipe() noexcept {
    const timespec no_wait{};
    sigset_t set;
    sigemptyset(&set);
    sigaddset(&set, SIGPIPE);
    ::sigtimedwait(&set, nullptr, &no_wait);
  }

  static void reset_signals() noexcept {
    struct sigaction action;
    for (int signal = 1; signal < 65; ++signal) {
      if (::sigaction(signal, nullptr, &action) != 0 || action.sa_handler == SIG_IGN || action.sa_handler == SIG_DFL)
        continue;
      action = {};
      action.sa_handler = SIG_DFL;
      ::sigaction(signal, &action, nullptr);
    }
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
  }
};

std::string fork_failure(int error_number) {
  if (error_number != EAGAIN) return errno_text(error_number);
  return fmt::format("{}: the limit of processes is reached{}", errno_text(error_number), process_limits_text());
}

}  // namespace

StartedProcess start_process(const ProcessSpec& spec, Guardian& guardian) {
  if (!spec.cpus.empty() && intersection(spec.cpus, current_affinity()).empty())
    throw make_error(Errc::io, "cannot bind {} to CPUs {}: this process may no longer use any of them",
                     spec.executable.string(), format_cpu_list(spec.cpus));
  const CpuMask cpus(spec.cpus);
  const auto arguments = pointers(spec.arguments);
  const auto environment = pointers(spec.environment);
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0)
    throw make_error(Errc::io, "cannot make a pipe to start {}: {}", spec.executable.string(), errno_text(errno));
  UniqueFd read_end(ends[0]);
  const UniqueFd write_end(ends[1]);
  Child child{.executable = spec.executable.c_str(),
              .arguments = arguments.data(),
              .environment = environment.data(),
              .in = spec.in,
              .out = spec.out,
              .err = spec.err,
              .inherited = spec.inherited,
              .parent = ::getpid(),
              .cpus = cpus,
              .descriptors = spec.descriptors,
              .guardian = guardian,
              .error_pipe = write_end.get()};
  const BlockedSignals blocked;
  const pid_t pid = ::fork();
  if (pid == 0) child.run();
  if (pid < 0) throw make_error(Errc::io, "cannot start {}: {}", spec.executable.string(), fork_failure(errno));
  guardian.remember_group(pid);
  return {pid, std::move(read_end)};
}

int exec_error(const StartedProcess& process) {
  int error = 0;
  return ::read(process.exec_error.get(), &error, sizeof(error)) == sizeof(error) ? error : 0;
}

std::vector<ProcessChange> reap_children(Guardian& guardian) {
  using Kind = ProcessChange::Kind;
  std::vector<ProcessChange> changes;
  int status = 0;
  rusage usage{};
  for (pid_t pid = 0; (pid = ::wait4(-1, &status, WNOHANG | WUNTRACED | WCONTINUED, &usage)) > 0;) {
    if (WIFSTOPPED(status)) {
      changes.push_back({Kind::stopped, {.pid = pid, .signal_number = WSTOPSIG(status)}});
    } else if (WIFCONTINUED(status)) {
      changes.push_back({Kind::continued, {.pid = pid}});
    } else {
      const bool signalled = WIFSIGNALED(status);
      if (guardian.owns(pid)) guardian.record_end(pid, signalled ? WTERMSIG(status) : 0);
      changes.push_back({Kind::ended,
                         {.pid = pid,
                          .code = signalled ? 0 : WEXITSTATUS(status),
                          .signal_number = signalled ? WTERMSIG(status) : 0,
                          .peak_kib = usage.ru_maxrss}});
    }
  }
  return changes;
}

}  // namespace ddprun
