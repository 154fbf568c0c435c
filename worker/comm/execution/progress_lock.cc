#include "worker/comm/execution/progress_lock.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::microseconds later_sleep(20'000);

}  // namespace

void ProgressLock::sleep_until_locked() {
  std::unique_lock lock(mutex_);
  ++waiters_;
  for (auto longest = first_sleep_; !try_lock(); longest = later_sleep) released_.wait_for(lock, longest);
  --waiters_;
}

void ProgressLock::wake_waiter() {
  const std::lock_guard lock(mutex_);
  released_.notify_one();
}

}  // namespace ddprun::comm
