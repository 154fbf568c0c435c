#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "common/unique_fd.h"
#include "worker/comm/health/exit_futex.h"
#include "worker/comm/health/process_identity.h"

namespace ddprun::comm {

// Reports the end of processes of this host by pidfd, whatever other process holds copies of their connections. One
// thread waits; on_end runs there.
class ProcessMonitor {
 public:
  struct Process {
    int rank = 0;
    ProcessIdentity identity;
  };
  using OnEnd = std::function<void(int rank)>;

  // on_end: called once a process, also for one that has already ended. Processes that cannot be watched (an old
  // kernel, no descriptor left) are skipped.
  ProcessMonitor(const std::vector<Process>& processes, OnEnd on_end);
  ~ProcessMonitor();
  ProcessMonitor(const ProcessMonitor&) = delete;
  ProcessMonitor& operator=(const ProcessMonitor&) = delete;

 private:
  struct Watched {
    int rank = 0;
    UniqueFd fd;
  };
  void run(const std::vector<int>& ended);

  const OnEnd on_end_;
  std::vector<Watched> watched_;
  UniqueFd stop_;
  std::thread thread_;  // last, as it uses all members above
};

// The probe of the group's other ranks on this host. One thread calls it.
class LocalProcesses {
 public:
  // on_end: called by other threads when take_ended() has something to return.
  LocalProcesses(int rank, std::function<void()> on_end);

  // Returns the line of this rank, which the ranks of a host append to a key of the store.
  std::string registration(const std::string& label = "") const;
  // Watches the ranks in such lines, except this one. Called once.
  void watch(const std::string& registrations);
  // Returns the ranks whose processes ended since the last call.
  std::vector<int> take_ended();
  // Returns "cuda:1, pid 42 on host b" for a rank that is watched, with its label.
  std::string identity(int rank) const;
  // Returns whether the rank is another process of this host, of which a thread has a processor or waits for one.
  bool runs(int rank) const;
  // Returns texts such as "its process is stopped", by rank.
  std::map<int, std::string> states() const;

 private:
  void record_end(int rank);

  const int rank_;
  const std::function<void()> on_end_;
  std::shared_ptr<ExitFutex> own_futex_;  // null if this process cannot have one
  std::map<int, ProcessIdentity> peers_;
  std::map<int, std::string> labels_;  // CommConfig::label of each rank

  std::mutex mutex_;
  std::vector<int> ended_;  // guarded by mutex_
  std::set<int> recorded_;  // those that ended_ has had; guarded by mutex_

  // Both report each end, the futexes first. They are last, as they use all members above.
  std::optional<ProcessMonitor> monitor_;
  std::optional<ExitFutexMonitor> futexes_;
};

}  // namespace ddprun::comm
