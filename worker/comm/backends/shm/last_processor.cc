#include "worker/comm/backends/shm/last_processor.h"

#include <sched.h>

namespace ddprun::comm {

// Stores only what is new, so that the line stays in the caches of those that read it.
void LastProcessor::record() {
  const auto now = static_cast<std::uint32_t>(::sched_getcpu() + 1);
  if (number_plus_one_.load(std::memory_order_relaxed) != now) number_plus_one_.store(now, std::memory_order_relaxed);
}

std::optional<int> LastProcessor::number() const {
  const auto plus_one = number_plus_one_.load(std::memory_order_relaxed);
  if (plus_one == 0) return std::nullopt;
  return static_cast<int>(plus_one) - 1;
}

}  // namespace ddprun::comm
