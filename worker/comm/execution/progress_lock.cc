#include "ddprun/worker/comm/execution/progress_lock.h"

namespace ddprun::comm {
namespace {

constexpr std::chrono::microseconds nap(20'000);  // behind the first one

}  // namespace

void ProgressLock::sleep_until_locked() {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  for (auto longest = first_nap_; !try_lock(); longest = nap) released_.wait_for(lock, longest);
  --sleepers_;
}

void ProgressLock::wake_sleeper() {
  const std::lock_guard lock(mutex_);
  released_.notify_one();
}

}  // namespace ddprun::comm
