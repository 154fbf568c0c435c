#include "ddprun/worker/comm/backends/shm/futex_counter.h"

#include <ctime>
#include <limits>
#include <linux/futex.h>
#include <sched.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>

#include "ddprun/worker/comm/backends/shm/pause.h"

namespace ddprun::comm {
namespace {

// The longest sleeps. The first ends soon after the owner's store, should it have overlooked this sleeper, has come
// through; the others bound a wake-up for an interruption that comes between a sleeper's look at it and its sleep.
constexpr timespec first_nap{.tv_sec = 0, .tv_nsec = 50'000};
constexpr timespec nap{.tv_sec = 0, .tv_nsec = 20'000'000};

class Sleeper {
 public:
  explicit Sleeper(std::atomic<std::uint32_t>& sleepers) : sleepers_(sleepers) { ++sleepers_; }
  ~Sleeper() { --sleepers_; }
  Sleeper(const Sleeper&) = delete;
  Sleeper& operator=(const Sleeper&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

void check(const WaitLimits& limits) {
  if (limits.interrupted.load(std::memory_order_relaxed)) throw std::runtime_error("interrupted");
  if (limits.peer.load(std::memory_order_acquire) == PeerState::broken)
    throw std::runtime_error("a peer broke the group");
}

}  // namespace

SpinPolicy SpinPolicy::for_threads(int threads, int processors) {
  return threads <= processors ? SpinPolicy{.spins = 4000, .yields = 4} : SpinPolicy{.spins = 1, .yields = 20};
}

void FutexCounter::wake() noexcept {
  ::syscall(SYS_futex, &value_, FUTEX_WAKE, std::numeric_limits<int>::max(), nullptr, nullptr, 0);
}

void FutexCounter::await(std::uint32_t target, const WaitLimits& limits) {
  if (!await_before(target, limits)) throw std::runtime_error("timed out");
}

bool FutexCounter::await_before(std::uint32_t target, const WaitLimits& limits) {
  if (!awake_until(target, limits.patience)) {
    const Sleeper sleeper(sleepers_);
    for (auto longest = first_nap; !reached(target); longest = nap) {
      check(limits);
      // Asked before the counter: what it did before it left counts.
      const bool left = limits.peer.load(std::memory_order_acquire) == PeerState::left;
      if (left && !reached(target)) throw std::runtime_error("a peer left the group");
      if (limits.deadline.expired()) return false;
      sleep(target, longest);
    }
  }
  check(limits);
  return true;
}

void FutexCounter::rest(std::uint32_t target, const SpinPolicy& patience) {
  if (awake_until(target, patience)) return;
  const Sleeper sleeper(sleepers_);
  sleep(target, nap);
}

bool FutexCounter::look_until(std::uint32_t target, const SpinPolicy& patience) const {
  for (int i = 0; i < patience.spins; ++i) {
    if (reached(target)) return true;
    pause_processor();
  }
  for (int i = 0; i < patience.yields; ++i) {
    if (reached(target)) return true;
    ::sched_yield();
  }
  return reached(target);
}

// Any return will do: the caller looks again.
void FutexCounter::sleep(std::uint32_t target, const timespec& longest) {
  const auto seen = value_.load(std::memory_order_seq_cst);
  if (static_cast<std::int32_t>(seen - target) >= 0) return;
  ::syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

}  // namespace ddprun::comm
