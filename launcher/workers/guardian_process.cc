#include "launcher/workers/guardian_process.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <poll.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <climits>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/pipe.h"
#include "launcher/workers/guardian.h"

namespace ddprun {
namespace {

using std::chrono::milliseconds;

#ifndef CLONE_PIDFD
constexpr unsigned long CLONE_PIDFD = 0x1000;
#endif
#ifndef P_PIDFD
constexpr auto P_PIDFD = static_cast<idtype_t>(3);
#endif

// A guardian that reads nothing for this long is frozen, not slow: the pipe holds thousands of records.
constexpr milliseconds read_timeout{1000};
constexpr milliseconds start_timeout{10'000};
// SIGKILL takes effect at once, unless the process is blocked in the kernel.
constexpr milliseconds sigkill_timeout{1000};

bool wait_for(int fd, short events, Deadline deadline) {
  pollfd entry{.fd = fd, .events = events, .revents = 0};
  int ready = 0;
  do ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

// Records do not exceed PIPE_BUF together, so a nonblocking write is whole or fails, and writers never interleave.
bool write_record(int pipe, const void* bytes, std::size_t size) noexcept {
  ssize_t written = 0;
  do written = ::write(pipe, bytes, size);
  while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(size);
}

}  // namespace

void GuardianProcess::start(Method method) {
  auto detached = make_pipe("the guardian's pipe");
  launch(method, detached.writer.get());
  detached_ = std::move(detached.reader);
}

void GuardianProcess::start_unawaited() {
  launch(Method::fork, -1);
}

void GuardianProcess::launch(Method method, int error_pipe) {
  auto records = make_pipe("the guardian's pipe");
  ::fcntl(records.writer.get(), F_SETFL, O_NONBLOCK);
  int pidfd = -1;
  const BlockedSignals blocked;
  // Like fork(), but without an exit signal, so that waitpid(-1) reports only workers and their children.
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PIDFD, 0UL, &pidfd, 0UL, 0UL));
  if (pid < 0) throw make_error(Errc::io, "cannot start the guardian process: {}", errno_text(errno));
  if (pid == 0) {
    if (method == Method::exec) execute(records.reader.get(), error_pipe);
    ::dup2(records.reader.get(), STDIN_FILENO);
    run_guardian(name_.c_str());
  }
  pid_ = pid;
  pidfd_ = UniqueFd(pidfd);
  pipe_ = std::move(records.writer);
  reaped_ = false;
  end_signal_ = 0;
}

// At the end of file the guardian has closed what it inherited, so it has left this process's session. Until then a
// signal to this process group would end both, and no process would kill the workers.
void GuardianProcess::wait_until_detached() {
  const UniqueFd detached = std::move(detached_);
  if (!wait_for(detached.get(), POLLIN, Deadline::in(start_timeout))) {
    kill();
    throw make_error(Errc::io, "the guardian process did not start within {} s",
                     std::chrono::duration_cast<std::chrono::seconds>(start_timeout).count());
  }
  int exec_error = 0;
  if (::read(detached.get(), &exec_error, sizeof(exec_error)) != sizeof(exec_error)) return;
  kill();
  throw make_error(Errc::io, "cannot execute ddprun as the guardian process: {}", errno_text(exec_error));
}

// The child makes only async-signal-safe calls: other threads of the parent may have held locks at the fork. It writes
// the error of a failed exec to error_pipe.
void GuardianProcess::execute(int pipe, int error_pipe) const {
  char program[] = "ddprun";
  char option[16] = {};
  char name[16] = {};
  Guardian::run_option.copy(option, sizeof(option) - 1);
  name_.copy(name, sizeof(name) - 1);
  char* const arguments[] = {program, option, name, nullptr};
  ::setsid();  // before the exec, which tells the parent that this process has left its group
  if (::dup2(pipe, STDIN_FILENO) == 0) ::execve("/proc/self/exe", arguments, environ);
  const int error = errno;
  if (::write(error_pipe, &error, sizeof(error)) < 0) ::_exit(126);
  ::_exit(127);
}

void GuardianProcess::send(const char* bytes, std::size_t size) {
  const auto deadline = Deadline::in(read_timeout);
  while (pipe_ && !write_record(pipe_.get(), bytes, size)) {
    if (errno == EAGAIN && !deadline.expired() && wait_for(pipe_.get(), POLLOUT, deadline)) continue;
    if (errno != EPIPE) signal(SIGKILL);  // it does not read: its replacement gets all records
    pipe_.reset();
  }
}

void GuardianProcess::send(GuardianRecord::Command command, std::span<const pid_t> groups) {
  constexpr std::size_t most = PIPE_BUF / sizeof(GuardianRecord);
  while (!groups.empty()) {
    std::vector<GuardianRecord> records;
    for (const pid_t group : groups.first(std::min(most, groups.size())))
      records.push_back({.command = command, .value = group});
    groups = groups.subspan(records.size());
    send(reinterpret_cast<const char*>(records.data()), records.size() * sizeof(GuardianRecord));
  }
}

void GuardianProcess::send(GuardianRecord::Command command, std::string_view text) {
  if (text.size() > GuardianRecord::max_text) return;
  const GuardianRecord record{.command = command, .value = static_cast<int>(text.size())};
  std::array<char, sizeof(record) + GuardianRecord::max_text> bytes;
  std::memcpy(bytes.data(), &record, sizeof(record));
  text.copy(bytes.data() + sizeof(record), text.size());
  send(bytes.data(), sizeof(record) + text.size());
}

void GuardianProcess::send_own_group() const noexcept {
  const GuardianRecord record{.command = GuardianRecord::Command::add_group,
                              .value = static_cast<int>(::syscall(SYS_getpid))};
  static_cast<void>(write_record(pipe_.get(), &record, sizeof(record)));
}

void GuardianProcess::close() {
  pipe_.reset();
  signal(SIGCONT);
}

bool GuardianProcess::wait_for_end(Deadline deadline) const {
  if (pidfd_) return wait_for(pidfd_.get(), POLLIN, deadline);
  siginfo_t info{};
  while (!reaped_ && ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | WNOWAIT | __WALL) == 0 &&
         info.si_pid == 0) {
    if (deadline.expired()) return false;
    std::this_thread::sleep_for(milliseconds(10));
  }
  return true;
}

void GuardianProcess::kill() {
  signal(SIGKILL);
  wait_for_end(Deadline::in(sigkill_timeout));
  reap();
}

// A process that was not reaped keeps its id.
void GuardianProcess::signal(int signal_number) const {
  if (pid_ > 0 && !reaped_) ::kill(pid_, signal_number);
}

// It waits by pidfd, since the id of a process that waitpid(-1) has reaped may have been reused.
int GuardianProcess::reap() {
  if (reaped_) return end_signal_;
  siginfo_t info{};
  int result = 0;
  do
    result = pidfd_ ? ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | WNOHANG | __WALL)
                    : ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | WNOHANG | __WALL);
  while (result < 0 && errno == EINTR);
  const bool signalled = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  if (result == 0 && info.si_pid != 0) record_end(signalled ? info.si_status : 0);
  return end_signal_;
}

void GuardianProcess::record_end(int signal_number) {
  reaped_ = true;
  end_signal_ = signal_number;
}

}  // namespace ddprun
