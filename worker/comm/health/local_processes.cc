#include "worker/comm/health/local_processes.h"

#include <cerrno>
#include <filesystem>
#include <fstream>
#include <poll.h>
#include <sstream>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <utility>

#include "common/blocked_signals.h"
#include "common/error.h"
#include "common/host_port.h"
#include "common/log.h"
#include "rendezvous/progress/rank_record.h"

namespace ddprun::comm {
namespace {

struct ProcessState {
  char state = 0;
  std::uint64_t start_time = 0;
};

// Reads fields 3 and 22 of a process's or a thread's file "stat". Field 2 is the program's name in parentheses, which
// may itself contain spaces and parentheses.
std::optional<ProcessState> read_state(const std::filesystem::path& stat) {
  std::ifstream file(stat);
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

std::optional<ProcessState> state_of(pid_t pid) {
  return read_state(fmt::format("/proc/{}/stat", pid));
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

bool ProcessIdentity::runs() const {
  if (!alive() || stopped()) return false;
  std::error_code ended;
  for (const auto& thread : std::filesystem::directory_iterator(fmt::format("/proc/{}/task", pid), ended)) {
    const auto state = read_state(thread.path() / "stat");
    if (state && state->state == 'R') return true;
  }
  return false;
}

// Opens the pidfd before it checks the identity: the descriptor cannot come to mean another process afterwards.
ProcessMonitor::ProcessMonitor(const std::vector<Process>& processes, OnEnd on_end)
    : on_end_(std::move(on_end)), stop_(::eventfd(0, EFD_CLOEXEC)) {
  if (!stop_) {
    log::debug("cannot watch for the end of processes: {}", errno_text(errno));
    return;
  }
  std::vector<int> ended;
  for (const auto& [rank, identity] : processes) {
    auto fd = open_process(identity.pid);
    if (!fd && errno != ESRCH) {
      log::debug("cannot watch for the end of rank {}'s process: {}", rank, errno_text(errno));
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
      log::debug("no longer watching for the end of processes: {}", errno_text(errno));
      return;
    }
    if (waiting.front().revents != 0) return;
    for (std::size_t i = 1; i < waiting.size(); ++i) {
      if (waiting[i].revents == 0) continue;
      waiting[i].fd = -1;  // poll ignores it from now on
      on_end_(watched_[i - 1].rank);
    }
  }
}

std::string LocalProcesses::registration(int rank, const std::string& label) {
  const auto process = ProcessIdentity::own();
  return fmt::format("{} {} {} {}\n", rank, process.pid, process.start_time, label);
}

// Ranks that are threads of this process end with it.
void LocalProcesses::watch(const std::string& registrations) {
  std::vector<ProcessMonitor::Process> processes;
  std::istringstream lines(registrations);
  for (ProcessMonitor::Process each; lines >> each.rank >> each.identity.pid >> each.identity.start_time;) {
    std::string label;
    std::getline(lines, label);
    if (each.rank == rank_) continue;
    peers_[each.rank] = each.identity;
    labels_[each.rank] = label.empty() ? label : label.substr(1);
    if (each.identity != ProcessIdentity::own()) processes.push_back(each);
  }
  if (processes.empty()) return;
  monitor_.emplace(processes, [this](int rank) {
    {
      const std::lock_guard lock(mutex_);
      ended_.push_back(rank);
    }
    on_end_();
  });
}

std::vector<int> LocalProcesses::take_ended() {
  const std::lock_guard lock(mutex_);
  return std::exchange(ended_, {});
}

std::string LocalProcesses::identity(int rank) const {
  return identity_text(labels_.at(rank), peers_.at(rank).pid, local_host_name());
}

bool LocalProcesses::runs(int rank) const {
  const auto peer = peers_.find(rank);
  return peer != peers_.end() && peer->second != ProcessIdentity::own() && peer->second.runs();
}

std::map<int, std::string> LocalProcesses::states() const {
  std::map<int, std::string> states;
  for (const auto& [rank, process] : peers_) {
    states[rank] = process.stopped() ? "its process is stopped"
                   : process.alive() ? "its process lives, but gets no processor time or is cut off from the store"
                                     : "its process has ended";
  }
  return states;
}

}  // namespace ddprun::comm
