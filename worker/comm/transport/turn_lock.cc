#include "ddprun/worker/comm/transport/turn_lock.h"

#include <chrono>

namespace ddprun::comm {
namespace {

// The first ends soon after a release that overlooked this sleeper; who releases later sees it.
constexpr std::chrono::microseconds first_nap(50);
constexpr std::chrono::microseconds nap(20'000);

}  // namespace

void TurnLock::sleep_until_locked() {
  std::unique_lock lock(mutex_);
  ++sleepers_;
  for (auto longest = first_nap; !try_lock(); longest = nap) released_.wait_for(lock, longest);
  --sleepers_;
}

void TurnLock::wake_sleeper() {
  const std::lock_guard lock(mutex_);
  released_.notify_one();
}

}  // namespace ddprun::comm
