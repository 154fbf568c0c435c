#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <sys/types.h>
#include <unistd.h>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

namespace ddprun {

// Finds out by /proc which sockets of this host belong to processes of a job: those of its agent, of the processes that
// descend from it, and of those that run the agent's program, such as ddprun status. The agent is the parent of its
// orphaned descendants (PR_SET_CHILD_SUBREAPER), so that a program that starts its own session still counts.
//
// A search reads the descriptors of one process after the other. It begins with new children of the agent, otherwise
// after the process in which the last socket was found, because workers start and connect in the same order. Sockets
// that it sees on the way are remembered: when many workers connect at once, one search finds them all.
//
// Ownership: a value. Threads: one at a time. Errors: none thrown; the sockets of a process that cannot be examined,
// because it has changed its user or has made itself undumpable, do not count.
class JobSockets {
 public:
  // program is that of the agent; if it is empty, only the agent and its descendants count.
  explicit JobSockets(pid_t agent = ::getpid(), std::filesystem::path program = "/proc/self/exe")
      : agent_(agent), program_(std::move(program)) {}

  // inode: SocketOwner::inode.
  bool hold(std::uint64_t inode);
  // Returns whether the process is one of the job.
  bool counts(pid_t process) const;

 private:
  bool search(std::uint64_t inode);
  bool remember_sockets_of(pid_t process, std::uint64_t wanted);
  void add_children();
  void find_processes();
  void add(pid_t process);
  bool runs_program(pid_t process) const;

  const pid_t agent_;
  const std::filesystem::path program_;
  std::vector<pid_t> processes_;
  std::unordered_set<pid_t> listed_;  // those in processes_
  std::size_t next_ = 0;              // the index in processes_ at which the next search begins
  std::unordered_map<std::uint64_t, pid_t> known_;
};

}  // namespace ddprun
