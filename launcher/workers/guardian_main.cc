// This code runs in a process of the guardian.
#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <filesystem>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <vector>

#include "launcher/workers/guardian_process.h"

namespace ddprun {
namespace {

using Command = GuardianRecord::Command;

// Reads standard input, many records with one system call.
class Input {
 public:
  // Returns false at the end of file.
  bool read(void* bytes, std::size_t size) {
    for (auto* to = static_cast<char*>(bytes); size > 0;) {
      if (begin_ == end_ && !refill()) return false;
      const auto some = std::min(size, end_ - begin_);
      std::memcpy(to, buffer_.data() + begin_, some);
      begin_ += some;
      to += some;
      size -= some;
    }
    return true;
  }

 private:
  bool refill() {
    ssize_t got = 0;
    do got = ::read(STDIN_FILENO, buffer_.data(), buffer_.size());
    while (got < 0 && errno == EINTR);
    begin_ = 0;
    end_ = got > 0 ? static_cast<std::size_t>(got) : 0;
    return got > 0;
  }

  std::array<char, 4096> buffer_;
  std::size_t begin_ = 0, end_ = 0;
};

bool has_text(Command command) {
  return command != Command::add_group && command != Command::remove_group;
}

// Reads /proc/<pid>/environ; returns whether one of its entries begins with the marker.
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

// The job as the agent has described it: the groups to kill and the paths to remove when the agent has ended.
class Job {
 public:
  // Returns false at the end of file.
  bool read() {
    GuardianRecord record;
    if (!input_.read(&record, sizeof(record))) return false;
    std::string text(has_text(record.command) ? static_cast<std::size_t>(record.value) : 0, '\0');
    if (!input_.read(text.data(), text.size())) return false;
    switch (record.command) {
      case Command::add_group:
        std::erase(groups_, record.value);  // the worker and its agent both report it
        groups_.push_back(record.value);
        break;
      case Command::remove_group:
        std::erase(groups_, record.value);
        break;
      case Command::set_marker:
        marker_ = std::move(text);
        break;
      case Command::add_path:
        paths_.push_back(std::move(text));
        break;
      case Command::remove_path:
        std::erase(paths_, text);
        break;
    }
    return true;
  }

  // After an orderly end there is no group left and nothing to search for. The kill is repeated, since a process may
  // fork during the search.
  void kill() const {
    for (const pid_t group : groups_) ::kill(-group, SIGKILL);
    if (groups_.empty()) return;
    for (int round = 0; round < max_rounds && kill_marked(marker_) > 0; ++round) continue;
  }

  // Removal is repeated, since a worker's last file may appear meanwhile, and the other guardian removes the same ones.
  void remove_paths() const {
    std::error_code ignored;
    for (const auto& path : paths_)
      for (int round = 0; round < max_rounds && std::filesystem::remove_all(path, ignored) > 0; ++round) continue;
  }

 private:
  static constexpr int max_rounds = 10;

  Input input_;
  std::vector<pid_t> groups_;
  std::string marker_;
  std::vector<std::string> paths_;
};

// Leaves the agent's session, signals, working directory and descriptors but standard input.
void detach(const char* name) {
  ::setsid();
  ::prctl(PR_SET_NAME, name);
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU})
    std::signal(signal, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  [[maybe_unused]] const int ignored = ::chdir("/");
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) != 0)
    for (int fd = 1; fd < 4096; ++fd) ::close(fd);
}

}  // namespace

void run_guardian(const char* name) {
  detach(name);
  Job job;
  while (job.read()) continue;
  job.kill();
  job.remove_paths();
  ::_exit(0);
}

}  // namespace ddprun
