#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace ddprun {

// The state of a thread, as proc(5) shows it.
struct ThreadSleep {
  pid_t thread = 0;
  bool uninterruptible = false;  // state D: no signal reaches it
  std::uint64_t switches = 0;    // the number of times it has given up its CPU; the same number twice is the same sleep
};

// Parses the thread of a /proc/<pid>/task/<tid>/status. Pure.
ThreadSleep parse_thread_sleep(std::string_view status);
// The threads of a process; empty once it has ended.
std::vector<ThreadSleep> thread_sleeps(pid_t process);
// The function of the kernel in which a thread sleeps, such as "rpc_wait_bit_killable"; empty where the kernel does not
// show it.
std::string wait_channel(pid_t process, pid_t thread);

// Finds threads that stay in one uninterruptible sleep, such as those whose file system or device does not answer.
// torchrun compares only states of the main thread, and takes many short sleeps for a long one; here a sleep counts
// only while the thread has not run in between.
//
// No I/O, no clock. A value; not thread-safe.
class SleepWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  struct Finding {
    pid_t thread = 0;
    std::chrono::steady_clock::duration slept{};  // the time as far as it was observed
  };

  // REQUIRES: limit > 0.
  explicit SleepWatch(std::chrono::milliseconds limit) : limit_(limit) {}

  // The interval of observations: short enough for a sleep to be found within 1.25 times the limit.
  std::chrono::milliseconds interval() const;
  // Takes a process's threads at this time. Returns the one that has slept for longest, if that is the limit or longer.
  std::optional<Finding> observe(pid_t process, const std::vector<ThreadSleep>& threads, Time now);
  void clear() { sleeps_.clear(); }

 private:
  struct Sleep {
    std::uint64_t switches = 0;
    Time since;
  };
  std::chrono::milliseconds limit_;
  std::map<std::pair<pid_t, pid_t>, Sleep> sleeps_;  // key: process and thread
};

}  // namespace ddprun
