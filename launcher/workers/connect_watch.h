#pragma once

#include <chrono>
#include <deque>
#include <functional>
#include <set>
#include <sys/types.h>

namespace ddprun {

// The TCP sockets of a process, by inode, from /proc/<pid>/fd; empty where the kernel does not show them.
std::set<ino_t> tcp_sockets(pid_t process);
// The sockets in the process's network namespace that listen, are connected, or are being connected.
std::set<ino_t> sockets_in_use(pid_t process);

// Recognises a process that tries again and again to connect to an address at which nobody listens. A socket whose
// connection was refused is in none of the kernel's tables; a client that keeps it until its next attempt, as PyTorch's
// does, has such a socket at every observation, and another one soon after.
//
// No I/O, no clock: it is given observations of one process. A value; not thread-safe.
class ConnectWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  static constexpr std::chrono::seconds limit{10};  // the time for which it has to continue
  static constexpr std::size_t attempts = 3;        // within 1.5 times that time

  // sockets are those of the process at this time; in_use is called if some of them are new. Returns whether the
  // process has only failed to connect for the limit.
  bool observe(const std::set<ino_t>& sockets, const std::function<std::set<ino_t>()>& in_use, Time now);

 private:
  std::set<ino_t> known_;
  std::set<ino_t> refused_;    // those of them that were refused
  std::deque<Time> attempts_;  // when a refused one was new
  Time since_;                 // there was one at each observation
};

}  // namespace ddprun
