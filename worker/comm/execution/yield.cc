#include "worker/comm/execution/yield.h"

#include <sched.h>

namespace ddprun::comm {

bool yield_processor() {
  thread_local YieldDecision decision;
  if (!decision.may_yield()) return false;
  const auto before = std::chrono::steady_clock::now();
  ::sched_yield();
  return decision.has_yielded(std::chrono::steady_clock::now() - before);
}

}  // namespace ddprun::comm
