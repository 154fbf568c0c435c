#include "ddprun/rendezvous/store/polling.h"

#include <algorithm>

namespace ddprun::rendezvous {

Polling::Clock::duration Polling::served(std::size_t requests, Clock::time_point now) {
  if (now - last_ > pause) {
    polls_ = false;
    begin_run(now);
  } else if (requests_ += requests; requests_ >= run_requests) {
    end_run((now - began_) / requests_);
    begin_run(now);
  }
  last_ = now;
  return polls_ ? Clock::duration(window) : Clock::duration::zero();
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
  polls_ ? judge_polling(pace) : judge_sleep(pace);
}

void Polling::judge_sleep(Clock::duration pace) {
  asleep_ = pace;
  if (runs_left_ > 0) {
    --runs_left_;
  } else if (pace >= quickest && pace <= slowest) {
    polls_ = true;
    runs_left_ = trusted_runs;
  }
}

void Polling::judge_polling(Clock::duration pace) {
  if (100 * pace > percent * asleep_) return fail();
  rest_ = 1;
  polls_ = --runs_left_ > 0;
}

void Polling::fail() {
  polls_ = false;
  runs_left_ = rest_;
  rest_ = std::min(2 * rest_, longest_rest);
}

}  // namespace ddprun::rendezvous
