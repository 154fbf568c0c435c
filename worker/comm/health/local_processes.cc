#include "worker/comm/health/local_processes.h"

#include <cerrno>
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

UniqueFd open_process(pid_t pid) {
  return UniqueFd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
}

}  // namespace

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

LocalProcesses::LocalProcesses(int rank, std::function<void()> on_end)
    : rank_(rank), on_end_(std::move(on_end)), own_futex_(ExitFutex::of_this_process()) {}

std::string LocalProcesses::registration(const std::string& label) const {
  const auto process = ProcessIdentity::own();
  return fmt::format("{} {} {} {} {}\n", rank_, process.pid, process.start_time,
                     own_futex_ ? own_futex_->address() : "-", label);
}

// Ranks that are threads of this process end with it.
void LocalProcesses::watch(const std::string& registrations) {
  std::vector<ProcessMonitor::Process> processes;
  std::vector<ExitFutexMonitor::Process> futexes;
  std::istringstream lines(registrations);
  for (ExitFutexMonitor::Process each;
       lines >> each.rank >> each.identity.pid >> each.identity.start_time >> each.address;) {
    std::string label;
    std::getline(lines, label);
    if (each.rank == rank_) continue;
    peers_[each.rank] = each.identity;
    labels_[each.rank] = label.empty() ? label : label.substr(1);
    if (each.identity == ProcessIdentity::own()) continue;
    processes.push_back({each.rank, each.identity});
    if (each.address != "-") futexes.push_back(each);
  }
  if (processes.empty()) return;
  futexes_.emplace(futexes, [this](int rank) { record_end(rank); });
  monitor_.emplace(processes, [this](int rank) { record_end(rank); });
}

void LocalProcesses::record_end(int rank) {
  {
    const std::lock_guard lock(mutex_);
    if (!recorded_.insert(rank).second) return;
    ended_.push_back(rank);
  }
  on_end_();
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
