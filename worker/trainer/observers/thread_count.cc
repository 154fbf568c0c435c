#include "worker/trainer/observers/thread_count.h"

#include <algorithm>

namespace ddprun::trainer {
namespace {

// Returns the process's share of the change that all would have to make together, at least one.
int share(int of, int own, int all) {
  return std::max(1, (of * own + all / 2) / std::max(1, all));
}

}  // namespace

bool ThreadCount::observe(const Load& load, TimePoint now) {
  const int before = count_;
  const int running = load.others + count_;
  if (running > load.processors) {
    if (count_ > 1) give_up(running - load.processors, running, now);
    busy_at_ = now;
  } else if (running == load.processors) {
    busy_at_ = now;
  } else {
    take_back(load.processors - running, now);
  }
  return count_ != before;
}

void ThreadCount::give_up(int too_many, int running, TimePoint now) {
  const bool was_wrong = raised_at_ != TimePoint{} && now - raised_at_ < trial;
  wait_ = was_wrong ? std::min(2 * wait_, longest_wait) : shortest_wait;
  count_ = std::max(1, count_ - share(too_many, count_, running));
}

void ThreadCount::take_back(int free, TimePoint now) {
  if (count_ == most_ || now - busy_at_ < wait_) return;
  count_ = std::min(most_, count_ + share(free, count_, count_ + free));
  raised_at_ = now;
}

}  // namespace ddprun::trainer
