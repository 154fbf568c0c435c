#include "rendezvous/store/polling.h"

#include <algorithm>

namespace ddprun::rendezvous {

Polling::Clock::duration Polling::served(std::size_t requests, Clock::time_point now, bool found_by_poll) {
  if (now - last_ > idle_gap) {
    if (found_by_poll) fail();
    polling_runs_left_ = 0;
    begin_run(now);
  } else if (requests_ += requests; requests_ >= run_requests) {
    end_run((now - began_) / requests_);
    begin_run(now);
  }
  last_ = now;
  return polling_runs_left_ > 0 ? Clock::duration(window) : Clock::duration::zero();
}

void Polling::poll_missed() {
  if (++misses_ <= max_misses) return;
  fail();
  begin_run(last_);
}

void Polling::begin_run(Clock::time_point now) {
  began_ = now;
  requests_ = misses_ = 0;
}

void Polling::end_run(Clock::duration pace) {
  polling_runs_left_ > 0 ? judge_polling(pace) : judge_sleeping(pace);
}

void Polling::judge_sleeping(Clock::duration pace) {
  sleeping_pace_ = pace;
  if (backoff_runs_left_ > 0) {
    --backoff_runs_left_;
  } else if (pace >= min_pace && pace <= max_pace) {
    polling_runs_left_ = max_polling_runs;
  }
}

void Polling::judge_polling(Clock::duration pace) {
  if (100 * pace > percent * sleeping_pace_) return fail();
  next_backoff_runs_ = 1;
  --polling_runs_left_;
}

void Polling::fail() {
  polling_runs_left_ = 0;
  backoff_runs_left_ = next_backoff_runs_;
  next_backoff_runs_ = std::min(2 * next_backoff_runs_, max_backoff_runs);
}

}  // namespace ddprun::rendezvous
