#include "tests/bench/process.h"

#include <atomic>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "common/environment.h"
#include "common/error.h"
#include "common/unique_fd.h"
#include "tests/support/processes.h"

namespace ddprun::bench {
namespace {

std::vector<char*> pointers(const Words& words) {
  std::vector<char*> result;
  for (const auto& word : words) result.push_back(const_cast<char*>(word.c_str()));
  result.push_back(nullptr);
  return result;
}

std::string new_mark() {
  static std::atomic<int> next{0};
  return fmt::format("DDPRUN_BENCH_PROCESS={}-{}", ::getpid(), next++);
}

// Kills the processes that remain after a launcher: workers in sessions of their own, and children that they forked.
void kill_all_with(const std::string& variable) {
  using testing::processes_with;
  const auto deadline = Deadline::in(std::chrono::seconds(10));
  for (auto left = processes_with(variable); !left.empty() && !deadline.expired(); left = processes_with(variable))
    for (const pid_t pid : left) ::kill(pid, SIGKILL);
}

}  // namespace

std::optional<std::string> find_on_path(const std::string& name) {
  std::string folders = Environment::capture().get("PATH").value_or("/usr/bin:/bin");
  for (std::size_t begin = 0; begin <= folders.size();) {
    const auto end = std::min(folders.find(':', begin), folders.size());
    const auto path = folders.substr(begin, end - begin) + "/" + name;
    if (::access(path.c_str(), X_OK) == 0) return path;
    begin = end + 1;
  }
  return std::nullopt;
}

Process::Process(const Words& command, const ProcessOptions& options)
    : own_group_(options.own_group), name_(command.at(0)) {
  const auto argv = pointers(command);
  auto environment = options.environment;
  if (own_group_ && environment.empty()) environment = Environment::capture().entries();
  if (own_group_) environment.push_back(mark_ = new_mark());
  const auto envp = pointers(environment);
  posix_spawn_file_actions_t actions;
  ::posix_spawn_file_actions_init(&actions);
  ::posix_spawn_file_actions_addopen(&actions, 1, "/dev/null", O_WRONLY, 0);
  if (!options.show_errors) ::posix_spawn_file_actions_addopen(&actions, 2, "/dev/null", O_WRONLY, 0);
  posix_spawnattr_t attributes;
  ::posix_spawnattr_init(&attributes);
  if (own_group_) ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETPGROUP);
  const int failure =
      ::posix_spawn(&pid_, argv[0], &actions, &attributes, argv.data(), environment.empty() ? environ : envp.data());
  ::posix_spawnattr_destroy(&attributes);
  ::posix_spawn_file_actions_destroy(&actions);
  if (failure != 0) throw make_error(Errc::io, "cannot execute {}: {}", name_, errno_text(failure));
}

Process::~Process() {
  if (pid_ < 0) return;
  // A launcher may have workers in sessions of their own, and ends them on request.
  if (own_group_) {
    ::kill(-pid_, SIGTERM);
    ends_before(Deadline::in(std::chrono::seconds(3)));
    ::kill(-pid_, SIGKILL);
  }
  ::kill(pid_, SIGKILL);
  while (::waitpid(pid_, nullptr, 0) < 0 && errno == EINTR) continue;
  if (own_group_) kill_all_with(mark_);
}

bool Process::ends_before(Deadline deadline) const {
  const UniqueFd ended(static_cast<int>(::syscall(SYS_pidfd_open, pid_, 0)));
  pollfd entry{ended.get(), POLLIN, 0};
  for (;;) {
    const int ready = ::poll(&entry, 1, deadline.poll_timeout_ms());
    if (ready > 0) return true;
    if (ready == 0 && deadline.expired()) return false;
    if (ready < 0 && errno != EINTR) throw make_error(Errc::io, "cannot wait for {}: {}", name_, errno_text(errno));
  }
}

double Process::wait() {
  int status = 0;
  rusage usage{};
  while (::wait4(pid_, &status, 0, &usage) < 0 && errno == EINTR) continue;
  pid_ = -1;
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    throw make_error(Errc::io, "{} did not end well (wait status {})", name_, status);
  return static_cast<double>(usage.ru_maxrss) / 1024;
}

}  // namespace ddprun::bench
