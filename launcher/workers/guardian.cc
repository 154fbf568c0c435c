#include "ddprun/launcher/workers/guardian.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/common/signal_name.h"

namespace ddprun {
namespace {

#ifndef CLONE_PIDFD
constexpr unsigned long CLONE_PIDFD = 0x1000;
#endif
#ifndef P_PIDFD
constexpr auto P_PIDFD = static_cast<idtype_t>(3);
#endif

// The pipe carries records of a fixed size, each written by one write(2) (far below PIPE_BUF, so never interleaved).
enum class Command : int { add_group, remove_group, set_marker, set_folder };
struct Record {
  Command command = Command::add_group;
  pid_t group = 0;
  std::array<char, 1024> text{};
};

bool send(int pipe, const Record& record) noexcept {
  ssize_t written = 0;
  do written = ::write(pipe, &record, sizeof(record));
  while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(sizeof(record));
}

void send_text(int pipe, Command command, const std::string& text) noexcept {
  Record record{.command = command};
  if (text.size() >= record.text.size()) return;
  std::memcpy(record.text.data(), text.data(), text.size());
  send(pipe, record);
}

bool receive(int pipe, Record& record) {
  for (;;) {
    const auto got = ::read(pipe, &record, sizeof(record));
    if (got == static_cast<ssize_t>(sizeof(record))) return true;
    if (got < 0 && errno == EINTR) continue;
    return false;
  }
}

// Reads /proc/<pid>/environ; true when one of its entries begins with the marker.
bool carries_marker(pid_t pid, std::string_view marker) {
  char path[64];
  std::snprintf(path, sizeof(path), "/proc/%d/environ", pid);
  const UniqueFd file(::open(path, O_RDONLY | O_CLOEXEC));
  if (!file) return false;
  std::string text;
  char block[16384];
  for (ssize_t got = 0; (got = ::read(file.get(), block, sizeof(block))) > 0;)
    text.append(block, static_cast<std::size_t>(got));
  if (std::string_view(text).starts_with(marker)) return true;
  std::string entry(1, '\0');
  entry += marker;
  return text.find(entry) != std::string::npos;
}

int kill_marked(std::string_view marker) {
  if (marker.empty()) return 0;
  DIR* folder = ::opendir("/proc");
  if (!folder) return 0;
  int killed = 0;
  while (const auto* entry = ::readdir(folder)) {
    const pid_t pid = std::atoi(entry->d_name);
    if (pid <= 1 || pid == ::getpid() || !carries_marker(pid, marker)) continue;
    if (::kill(pid, SIGKILL) == 0) ++killed;
  }
  ::closedir(folder);
  return killed;
}

// Leaves the agent's session, signals, working directory and descriptors; the pipe becomes standard input.
void detach(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ddprun-guardian");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU})
    std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (::chdir("/") != 0) return;
  if (pipe != 0) ::dup2(pipe, 0);
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) != 0)
    for (int fd = 1; fd < 4096; ++fd) ::close(fd);
}

std::string text_of(const Record& record) {
  return {record.text.data(), ::strnlen(record.text.data(), record.text.size())};
}

[[noreturn]] void guard(int inherited_pipe) {
  detach(inherited_pipe);
  std::vector<pid_t> groups;
  std::string marker;
  std::string folder;
  Record record;
  while (receive(0, record)) {
    switch (record.command) {
      case Command::add_group:
        groups.push_back(record.group);
        break;
      case Command::remove_group:
        groups.erase(std::remove(groups.begin(), groups.end(), record.group), groups.end());
        break;
      case Command::set_marker:
        marker = text_of(record);
        break;
      case Command::set_folder:
        folder = text_of(record);
        break;
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  // After an orderly end there is no group left and nothing to search for. Repeated, since a process may fork during
  // the search.
  if (!groups.empty())
    for (int round = 0; round < 10 && kill_marked(marker) > 0; ++round) continue;
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

// Only async-signal-safe calls: other threads of the parent may have held locks at the fork. Writes the error of a
// failed exec to error_pipe.
[[noreturn]] void execute_guardian(int pipe, int error_pipe) {
  char program[] = "ddprun";
  char option[16] = {};
  Guardian::run_option.copy(option, sizeof(option) - 1);
  char* const arguments[] = {program, option, nullptr};
  ::setsid();  // before the exec, which tells the parent that this process has left its group
  if (::dup2(pipe, STDIN_FILENO) == 0) ::execve("/proc/self/exe", arguments, environ);
  const int error = errno;
  if (::write(error_pipe, &error, sizeof(error)) < 0) ::_exit(126);
  ::_exit(127);
}

}  // namespace

Guardian::Guardian() {
  start(false);
}

Guardian::~Guardian() {
  pipe_.reset();
  pollfd exit{.fd = pidfd_.get(), .events = POLLIN, .revents = 0};
  while (pidfd_ && ::poll(&exit, 1, -1) < 0 && errno == EINTR) continue;
  reap(0);
}

// Returns the signal that ended it, 0 when there was none or it is not known. By pidfd, since a restarted guardian may
// have been reaped by waitpid(-1) and its process id be in use again. With a pidfd it may not wait: an event loop that
// watches a copy of the descriptor makes both nonblocking.
int Guardian::reap(int flags) {
  siginfo_t info{};
  int result = 0;
  do
    result = pidfd_ ? ::waitid(P_PIDFD, static_cast<id_t>(pidfd_.get()), &info, WEXITED | __WALL | flags)
                    : ::waitid(P_PID, static_cast<id_t>(pid_), &info, WEXITED | __WALL | flags);
  while (result < 0 && errno == EINTR);
  const bool signalled = info.si_code == CLD_KILLED || info.si_code == CLD_DUMPED;
  return result == 0 && info.si_pid != 0 && signalled ? info.si_status : 0;
}

void Guardian::start(bool by_exec) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw make_error(Errc::io, "cannot make the guardian's pipe: {}", errno_text(errno));
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  int detached_ends[2];
  if (::pipe2(detached_ends, O_CLOEXEC) != 0)
    throw make_error(Errc::io, "cannot make the guardian's pipe: {}", errno_text(errno));
  const UniqueFd detached(detached_ends[0]);
  UniqueFd until_detached(detached_ends[1]);
  int pidfd = -1;
  const BlockedSignals blocked;
  // Like fork(), but without an exit signal, so that waitpid(-1) reports only workers and their children.
  const auto pid = static_cast<pid_t>(::syscall(SYS_clone, CLONE_PIDFD, 0UL, &pidfd, 0UL, 0UL));
  if (pid < 0) throw make_error(Errc::io, "cannot start the guardian process: {}", errno_text(errno));
  if (pid == 0) by_exec ? execute_guardian(read_end.get(), until_detached.get()) : guard(read_end.get());
  UniqueFd new_pidfd(pidfd);
  // End of file: the guardian has closed what it inherited, so it has left this process's session. Until then a signal
  // to this process group would end both, and no process would kill the workers.
  until_detached.reset();
  int exec_error = 0;
  ssize_t got = 0;
  do got = ::read(detached.get(), &exec_error, sizeof(exec_error));
  while (got < 0 && errno == EINTR);
  if (got > 0) {
    while (::waitpid(pid, nullptr, __WALL) < 0 && errno == EINTR) continue;
    throw make_error(Errc::io, "cannot execute ddprun as the guardian process: {}", errno_text(exec_error));
  }
  pid_ = pid;
  pipe_ = std::move(write_end);
  pidfd_ = std::move(new_pidfd);
}

std::string Guardian::restart() {
  const int signal_number = reap(WNOHANG);
  start(true);
  restarted_ = true;
  for (const pid_t group : groups_) send(pipe_.get(), {.command = Command::add_group, .group = group});
  send_text(pipe_.get(), Command::set_marker, marker_);
  send_text(pipe_.get(), Command::set_folder, folder_);
  return signal_number != 0 ? signal_name(signal_number) : "";
}

void Guardian::run() {
  guard(STDIN_FILENO);
}

bool Guardian::add_own_group() const noexcept {
  return send(pipe_.get(), {.command = Command::add_group, .group = static_cast<pid_t>(::syscall(SYS_getpid))});
}

void Guardian::remove_group(pid_t group) {
  std::erase(groups_, group);
  send(pipe_.get(), {.command = Command::remove_group, .group = group});
}

void Guardian::set_marker(const std::string& prefix) {
  marker_ = prefix;
  send_text(pipe_.get(), Command::set_marker, prefix);
}

void Guardian::remove_with_job(const std::string& folder) {
  folder_ = folder;
  send_text(pipe_.get(), Command::set_folder, folder);
}

}  // namespace ddprun
