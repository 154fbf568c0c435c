#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun::rendezvous {

// Whether a server that has nothing to do looks for the next request for a moment before it sleeps. To be woken may
// take longer than to serve (25 us and more where an idle processor has to be woken too); but who looks takes a
// processor from others, perhaps from the very client that is awaited. So it is tried, and kept while it pays: requests
// are counted in runs, and one that polls has to be quicker than the last one that slept. After a trial that failed
// comes a rest, twice as long each time.
//
// Decides only: told of requests and of the time, it says how long to look. When the clients pause, it sleeps for a
// run. A look that comes back much too late is no pause, but a failure: whoever had the processor kept it.
class Polling {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::microseconds window{50};  // of one look
  static constexpr std::size_t run_requests = 128;
  static constexpr std::size_t run_misses = 32;  // looks in vain; one more ends the trial
  static constexpr int percent = 97;             // of a request's time asleep: more does not pay
  // The time a request takes, asleep, that makes a trial worthwhile. Quicker: it hardly sleeps. Slower: requests are
  // too rare.
  static constexpr std::chrono::microseconds quickest{10}, slowest{100};
  // Without a request: after it they are no longer being polled for.
  static constexpr std::chrono::milliseconds pause{1};
  static constexpr std::size_t trusted_runs = 64;    // that paid, until sleep is measured again
  static constexpr std::size_t longest_rest = 1024;  // runs

  // Requests have been served up to now, which a look found or for which the server was woken. How long to look for
  // more before sleeping: 0 or window.
  Clock::duration served(std::size_t requests, Clock::time_point now, bool found_by_look);
  // Looked that long, and nothing came.
  void missed();

 private:
  void begin_run(Clock::time_point now);
  void end_run(Clock::duration pace);
  void judge_sleep(Clock::duration pace);
  void judge_polling(Clock::duration pace);
  void fail();

  std::size_t to_poll_ = 0;   // runs; none: it sleeps
  std::size_t to_rest_ = 0;   // runs, before the next trial
  std::size_t rest_ = 1;      // after the next failure
  Clock::duration asleep_{};  // a request's time in the last run that slept
  Clock::time_point last_;
  // Of this run.
  Clock::time_point began_;
  std::size_t requests_ = 0;
  std::size_t misses_ = 0;
};

}  // namespace ddprun::rendezvous
