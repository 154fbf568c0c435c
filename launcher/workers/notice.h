#pragma once

#include <cstdint>
#include <string_view>
#include <sys/types.h>
#include <vector>

// Signals that tell a process something and are not meant to end it (SIGUSR1, SIGUSR2), where the default is to end it.
namespace ddprun {

// Of the text of /proc/<pid>/status: bit n-1 stands for signal n.
struct SignalMasks {
  std::uint64_t blocked = 0;
  std::uint64_t ignored = 0;
  std::uint64_t caught = 0;

  // It has a handler, or waits for it (sigwait, signalfd), or will not mind.
  bool survives(int signal_number) const { return ((blocked | ignored | caught) >> (signal_number - 1) & 1) != 0; }
};
SignalMasks parse_signal_masks(std::string_view status);

// Sends the signal to those processes of the group that would not be ended by it. Returns whether the leader is one of
// them.
bool notify_group(pid_t group, int signal_number);

}  // namespace ddprun
