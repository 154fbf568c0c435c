#include "tests/simulation/virtual_time.h"

#include <algorithm>
#include <tuple>
#include <utility>

namespace ddprun::testing {

bool VirtualTime::later(const Event& a, const Event& b) {
  return std::tie(a.when, a.number) > std::tie(b.when, b.number);
}

void VirtualTime::at(Time when, std::function<void()> action) {
  events_.push_back({std::max(when, now_), scheduled_++, std::move(action)});
  std::push_heap(events_.begin(), events_.end(), later);
}

bool VirtualTime::step() {
  if (events_.empty()) return false;
  std::pop_heap(events_.begin(), events_.end(), later);
  const Event next = std::move(events_.back());
  events_.pop_back();
  now_ = next.when;
  next.action();
  return true;
}

}  // namespace ddprun::testing
