#include "common/deadline.h"

#include <algorithm>

#include <climits>

namespace ddprun {

Deadline Deadline::in(Duration timeout, Clock::time_point now) {
  if (timeout >= Clock::time_point::max() - now) return never();
  return Deadline(now + timeout);
}

Deadline::Duration Deadline::remaining(Clock::time_point now) const {
  if (!when_) return Duration::max();
  return *when_ > now ? *when_ - now : Duration::zero();
}

int Deadline::poll_timeout_ms(Clock::time_point now) const {
  if (!when_) return -1;
  const auto ms = std::chrono::ceil<std::chrono::milliseconds>(remaining(now)).count();
  return static_cast<int>(std::min<long long>(ms, INT_MAX));
}

Deadline earlier(const Deadline& a, const Deadline& b) {
  if (!a.when_) return b;
  if (!b.when_) return a;
  return *a.when_ < *b.when_ ? a : b;
}

}  // namespace ddprun
