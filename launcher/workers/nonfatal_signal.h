#pragma once

#include <cstdint>
#include <string_view>
#include <sys/types.h>
#include <vector>

// Sends signals that are meant as notifications (SIGUSR1, SIGUSR2), but only to processes that they would not end.
namespace ddprun {

// The signal masks in /proc/<pid>/task/<tid>/status: bit n-1 is signal n.
struct ThreadSignals {
  std::uint64_t blocked = 0;
  std::uint64_t ignored = 0;  // by the whole process
  std::uint64_t caught = 0;   // by the whole process
  bool sleeps = false;        // interruptibly (state S)

  // Returns true also while a shell or posix_spawn forks, since they block all signals then.
  bool blocks_all() const;
};
ThreadSignals parse_thread_signals(std::string_view status);

// Returns whether a process with these threads handles or ignores the signal, or waits for it (sigwait, signalfd).
bool is_nonfatal(const std::vector<ThreadSignals>& threads, int signal_number);

// Returns whether the signal would not end this process, as far as the kernel tells.
bool survives(pid_t pid, int signal_number);

// Sends the signal to the processes of the group that it would not end. Returns whether it was sent to the leader.
// Never fails; a process that changes its handlers at the same time may be judged wrongly.
bool send_nonfatal_signal(pid_t group, int signal_number);

}  // namespace ddprun
