#include "ddprun/worker/comm/health/process_monitor.h"

#include <cerrno>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "ddprun/common/blocked_signals.h"
#include "ddprun/common/error.h"
#include "ddprun/common/log.h"

namespace ddprun::comm {
namespace {

struct ProcessState {
  char state = 0;
  std::uint64_t start_time = 0;
};

// From /proc/<pid>/stat: the third field, and the twenty-second. The second is a name in parentheses, whatever it
// holds.
std::optional<ProcessState> state_of(pid_t pid) {
  std::ifstream file(fmt::format("/proc/{}/stat", pid));
  std::string text;
  std::getline(file, text);
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream fields(text.substr(name_end + 1));
  ProcessState result;
  fields >> result.state;
  std::string skipped;
  for (int field = 4; field < 22; ++field) fields >> skipped;
  fields >> result.start_time;
  if (!fields) return std::nullopt;
  return result;
}

UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

ProcessIdentity ProcessIdentity::own() {
  const auto state = state_of(::getpid());
  return {::getpid(), state ? state->start_time : 0};
}

bool ProcessIdentity::alive() const {
  const auto state = state_of(pid);
  return state && state->start_time == start_time && state->state != 'Z' && state->state != 'X';
}

bool ProcessIdentity::stopped() const {
  const auto state = state_of(pid);
  return state && state->start_time == start_time && (state->state == 'T' || state->state == 't');
}

// Opened first and asked after: a descriptor of the right process stays one.
ProcessMonitor::ProcessMonitor(const std::vector<Process>& processes, OnEnd on_end)
    : on_end_(std::move(on_end)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) {
    log::debug("the ends of processes cannot be watched: {}", errno_text(errno));
    return;
  }
  std::vector<int> ended;
  for (const auto& [rank, identity] : processes) {
    auto fd = open_process(identity.pid);
    if (!fd && errno != ESRCH) {
      log::debug("the end of rank {}'s process cannot be watched: {}", rank, errno_text(errno));
    } else if (!fd || !identity.alive()) {
      ended.push_back(rank);
    } else {
      watched_.push_back({rank, std::move(fd)});
    }
  }
  thread_ = start_signal_free_thread([this, ended] { run(ended); });
}

ProcessMonitor::~ProcessMonitor() {
  if (!thread_.joinable()) return;
  ::eventfd_write(stop_.get(), 1);
  thread_.join();
}

void ProcessMonitor::run(const std::vector<int>& ended) {
  for (const int rank : ended) on_end_(rank);
  std::vector<pollfd> waiting{{stop_.get(), POLLIN, 0}};
  for (const auto& each : watched_) waiting.push_back({each.fd.get(), POLLIN, 0});
  while (true) {
    if (::poll(waiting.data(), waiting.size(), -1) < 0) {
      if (errno == EINTR) continue;
      log::debug("the ends of processes are watched no longer: {}", errno_text(errno));
      return;
    }
    if (waiting.front().revents != 0) return;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      waiting[i].fd = -1;  // poll leaves it out from now on
      on_end_(watched_[i - 1].rank);
    }
  }
}

}  // namespace ddprun::comm
