#include "worker/comm/backends/shm/futex_counter.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <linux/futex.h>
#include <stdexcept>
#include <sys/syscall.h>
#include <unistd.h>

#include "worker/comm/backends/shm/pause.h"
#include "worker/comm/backends/shm/processor_sharing.h"
#include "worker/comm/execution/yield.h"

namespace ddprun::comm {
namespace {

// The longest sleeps. The first is short, in case the owner missed this sleeper; the others bound the delay of an
// interruption that arrives between a sleeper's check and its sleep.
constexpr timespec first_sleep{.tv_sec = 0, .tv_nsec = 50'000};
constexpr timespec later_sleep{.tv_sec = 0, .tv_nsec = 20'000'000};

class CountedSleeper {
 public:
  explicit CountedSleeper(std::atomic<std::uint32_t>& sleepers) : sleepers_(sleepers) { ++sleepers_; }
  ~CountedSleeper() { --sleepers_; }
  CountedSleeper(const CountedSleeper&) = delete;
  CountedSleeper& operator=(const CountedSleeper&) = delete;

 private:
  std::atomic<std::uint32_t>& sleepers_;
};

// Returns the longest duration, or what is left until the end if that is shorter.
timespec shorter(const timespec& longest, Deadline::Clock::time_point end) {
  const auto left = std::chrono::duration_cast<std::chrono::nanoseconds>(end - Deadline::Clock::now());
  const std::chrono::nanoseconds most =
      std::chrono::seconds(longest.tv_sec) + std::chrono::nanoseconds(longest.tv_nsec);
  const auto shortest = std::clamp(left, std::chrono::nanoseconds(0), most);
  return {.tv_sec = 0, .tv_nsec = static_cast<long>(shortest.count())};
}

// After that many spins a wait is long enough for a look at where its ranks run.
constexpr int spins_before_look = 64;

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

void FutexCounter::wait(std::uint32_t target, const WaitLimits& limits) {
  if (!try_wait(target, limits)) throw std::runtime_error("timed out");
}

bool FutexCounter::try_wait(std::uint32_t target, const WaitLimits& limits) {
  if (!stay_awake(target, limits)) {
    const CountedSleeper sleeper(sleepers_);
    for (auto longest = first_sleep; !reached(target); longest = later_sleep) {
      check(limits);
      // Read before the counter: what the peer did before it left counts.
      const bool left = limits.peer.load(std::memory_order_acquire) == PeerState::left;
      if (left && !reached(target)) throw std::runtime_error("a peer left the group");
      if (limits.deadline.expired()) return false;
      sleep(target, limits.deadline.when() ? shorter(longest, *limits.deadline.when()) : longest);
    }
  }
  check(limits);
  return true;
}

void FutexCounter::wait_briefly(std::uint32_t target, const SpinPolicy& policy, const MessageWait& message) {
  if (spin(target, policy, message)) return;
  const CountedSleeper sleeper(sleepers_);
  sleep(target, later_sleep);
}

bool FutexCounter::spin_loop(std::uint32_t target, const SpinPolicy& policy,
                             const std::optional<WaitingRanks>& ranks) const {
  for (int i = 0; i < policy.spins; ++i) {
    if (reached(target)) return true;
    if (i == spins_before_look && ranks && !ranks->own.may_spin(ranks->peer)) break;
    pause_processor();
  }
  for (int i = 0; i < policy.yields; ++i) {
    if (reached(target)) return true;
    if (!yield_processor()) break;
  }
  return reached(target);
}

bool FutexCounter::spin(std::uint32_t target, const SpinPolicy& policy, const MessageWait& message) const {
  const std::int64_t tries = std::int64_t{policy.spins} + policy.yields;
  for (std::int64_t i = 0; i < tries && message.is_alone(); ++i) {
    if (reached(target)) return true;
    if (i >= spins_before_await && !message.is_awaited()) break;
    if (i < policy.spins)
      pause_processor();
    else if (!yield_processor())
      break;
  }
  return reached(target);
}

bool FutexCounter::stay_awake(std::uint32_t target, const WaitLimits& limits) const {
  return limits.message ? spin(target, limits.spin_policy, *limits.message)
                        : spin(target, limits.spin_policy, limits.ranks);
}

// The result does not matter: the caller checks the counter again.
void FutexCounter::sleep(std::uint32_t target, const timespec& longest) {
  const auto seen = value_.load(std::memory_order_seq_cst);
  if (static_cast<std::int32_t>(seen - target) >= 0) return;
  ::syscall(SYS_futex, &value_, FUTEX_WAIT, seen, &longest, nullptr, 0);
}

}  // namespace ddprun::comm
