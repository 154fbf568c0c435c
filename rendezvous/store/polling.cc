#include "ddprun/rendezvous/store/polling.h"

#include <algorithm>

namespace ddprun::rendezvous {

Polling::Clock::duration Polling::served(std::size_t requests, Clock::time_point now, bool found_by_look) {
  if (now - last_ > pause) {
    if (found_by_look) fail();
    to_poll_ = 0;
    begin_run(now);
  } else if (requests_ += requests; requests_ >= run_requests) {
    end_run((now - began_) / requests_);
    begin_run(now);
  }
  last_ = now;
  return to_poll_ > 0 ? Clock::duration(window) : Clock::duration::zero();
}

void Polling::missed() {
  if (++misses_ <= run_misses) return;
  fail();
  begin_run(last_);
}

void Polling::begin_run(Clock::time_point now) {
  began_ = now;
  requests_ = misses_ = 0;
}

void Polling::end_run(Clock::duration pace) {
  to_poll_ > 0 ? judge_polling(pace) : judge_sleep(pace);
}

void Polling::judge_sleep(Clock::duration pace) {
  asleep_ = pace;
  if (to_rest_ > 0) {
    --to_rest_;
  } else if (pace >= quickest && pace <= slowest) {
    to_poll_ = trusted_runs;
  }
}

void Polling::judge_polling(Clock::duration pace) {
  if (100 * pace > percent * asleep_) return fail();
  rest_ = 1;
  --to_poll_;
}

void Polling::fail() {
  to_poll_ = 0;
  to_rest_ = rest_;
  rest_ = std::min(2 * rest_, longest_rest);
}

}  // namespace ddprun::rendezvous
