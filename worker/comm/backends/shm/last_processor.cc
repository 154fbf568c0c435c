#include "worker/comm/backends/shm/last_processor.h"

#include <sched.h>

namespace ddprun::comm {

// Stores only what is new, so that the line stays in the caches of those that read it.
int LastProcessor::record() {
  const int processor = ::sched_getcpu();
  const auto now = static_cast<std::uint32_t>(processor + 1);
  if (number_plus_one_.load(std::memory_order_relaxed) != now) number_plus_one_.store(now, std::memory_order_relaxed);
  return processor;
}

std::optional<int> LastProcessor::number() const {
  const auto plus_one = number_plus_one_.load(std::memory_order_relaxed);
  if (plus_one == 0) return std::nullopt;
  return static_cast<int>(plus_one) - 1;
}

}  // namespace ddprun::comm
