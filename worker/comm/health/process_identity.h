#pragma once

#include <cstdint>
#include <sys/types.h>

namespace ddprun::comm {

// A process of this host, distinct from a later one with the same id.
struct ProcessIdentity {
  pid_t pid = 0;
  std::uint64_t start_time = 0;  // in the kernel's ticks since boot

  static ProcessIdentity own();
  bool alive() const;    // a stopped process is alive; a zombie is not
  bool stopped() const;  // stopped by a signal or a debugger
  bool runs() const;     // a thread of it has a processor, or waits for one
  friend bool operator==(const ProcessIdentity&, const ProcessIdentity&) = default;
};

}  // namespace ddprun::comm
