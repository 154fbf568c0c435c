#pragma once

#include <cstdint>
#include <string_view>
#include <sys/types.h>
#include <vector>

// Signals that tell a process something and are not meant to end it (SIGUSR1, SIGUSR2), where the default is to end it.
namespace ddprun {

// Of the text of /proc/<pid>/task/<tid>/status: bit n-1 stands for signal n.
struct ThreadSignals {
  std::uint64_t blocked = 0;
  std::uint64_t ignored = 0;  // by the whole process
  std::uint64_t caught = 0;   // likewise
  bool sleeps = false;        // until an event or a signal

  // Also the moment in which a process forks: shells and posix_spawn block all signals then.
  bool blocks_all() const;
};
ThreadSignals parse_thread_signals(std::string_view status);

// Whether a process with these threads has a handler for the signal, or waits for it (sigwait, signalfd), or will not
// mind.
bool survives(const std::vector<ThreadSignals>& threads, int signal_number);

// Sends the signal to those processes of the group that would not be ended by it. Returns whether the leader is one of
// them.
bool notify_group(pid_t group, int signal_number);

}  // namespace ddprun
