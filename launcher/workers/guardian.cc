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
#include <string_view>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include "ddprun/common/error.h"

namespace ddprun {
namespace {

// What the pipe carries: fixed-size records, each written whole (far below PIPE_BUF, hence never interleaved).
enum class Tell : int { add_group, remove_group, marker, folder };
struct Record {
  Tell tell = Tell::add_group;
  pid_t group = 0;
  std::array<char, 1024> text{};
};

bool send(int pipe, const Record& record) noexcept {
  ssize_t written = 0;
  do written = ::write(pipe, &record, sizeof(record));
  while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(sizeof(record));
}

void send_text(int pipe, Tell tell, const std::string& text) noexcept {
  Record record{.tell = tell};
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

// /proc/<pid>/environ read in blocks; true when one of its entries begins with the marker.
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

void forget_everything_inherited(int pipe) {
  ::setsid();
  ::prctl(PR_SET_NAME, "ddprun-guardian");
  for (const int signal : {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE, SIGUSR1, SIGUSR2, SIGTSTP, SIGTTIN, SIGTTOU})
    std::signal(signal, SIG_IGN);
  if (::chdir("/") != 0) return;
  if (pipe != 0) ::dup2(pipe, 0);
  if (::syscall(SYS_close_range, 1u, ~0u, 0u) != 0)
    for (int fd = 1; fd < 4096; ++fd) ::close(fd);
}

std::string text_of(const Record& record) {
  return {record.text.data(), ::strnlen(record.text.data(), record.text.size())};
}

[[noreturn]] void guard(int inherited_pipe) {
  forget_everything_inherited(inherited_pipe);
  std::vector<pid_t> groups;
  std::string marker;
  std::string folder;
  Record record;
  while (receive(0, record)) {
    switch (record.tell) {
      case Tell::add_group:
        groups.push_back(record.group);
        break;
      case Tell::remove_group:
        groups.erase(std::remove(groups.begin(), groups.end(), record.group), groups.end());
        break;
      case Tell::marker:
        marker = text_of(record);
        break;
      case Tell::folder:
        folder = text_of(record);
        break;
    }
  }
  for (const pid_t group : groups) ::kill(-group, SIGKILL);
  // After an orderly end there is no group left and nothing to look for. A process may fork while being looked for:
  // again.
  if (!groups.empty())
    for (int round = 0; round < 10 && kill_marked(marker) > 0; ++round) continue;
  std::error_code ignored;
  if (!folder.empty()) std::filesystem::remove_all(folder, ignored);
  ::_exit(0);
}

}  // namespace

Guardian::Guardian() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0)
    throw make_error(Errc::io, "cannot make the guardian's pipe: {}", errno_text(errno));
  const UniqueFd read_end(ends[0]);
  pipe_ = UniqueFd(ends[1]);
  // As fork(), but with no exit signal: waitpid(-1) then speaks of workers and their children alone.
  pid_ = static_cast<pid_t>(::syscall(SYS_clone, 0UL, 0UL, 0UL, 0UL, 0UL));
  if (pid_ < 0) throw make_error(Errc::io, "cannot start the guardian process: {}", errno_text(errno));
  if (pid_ == 0) guard(read_end.get());
}

Guardian::~Guardian() {
  pipe_.reset();
  while (::waitpid(pid_, nullptr, __WALL) < 0 && errno == EINTR) continue;
}

bool Guardian::add_own_group() const noexcept {
  return send(pipe_.get(), {.tell = Tell::add_group, .group = static_cast<pid_t>(::syscall(SYS_getpid))});
}

void Guardian::remove_group(pid_t group) const noexcept {
  send(pipe_.get(), {.tell = Tell::remove_group, .group = group});
}

// A text cut short might be another job's too: rather none.
void Guardian::set_marker(const std::string& prefix) const noexcept {
  send_text(pipe_.get(), Tell::marker, prefix);
}

void Guardian::remove_with_job(const std::string& folder) const noexcept {
  send_text(pipe_.get(), Tell::folder, folder);
}

}  // namespace ddprun
