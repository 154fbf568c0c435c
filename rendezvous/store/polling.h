#pragma once

#include <chrono>
#include <cstddef>

namespace ddprun::rendezvous {

// Decides whether a server without work polls for the next request for a moment before it sleeps. A wake-up may take
// longer than serving a request (25 us and more if an idle core has to wake up), but polling takes a core away from
// others, perhaps from the client whose request is awaited. So polling is tried and kept while it pays: requests are
// counted in runs, and a run with polling must be faster than the last one without. After a failed trial polling pauses
// for a number of runs, which doubles with each failure.
//
// A pure state machine: the caller reports requests and the time. If clients make a pause, the next run does not poll.
// A poll that returns much too late is a failure: another process had the core. Not thread-safe.
class Polling {
 public:
  using Clock = std::chrono::steady_clock;

  static constexpr std::chrono::microseconds window{50};  // duration of one poll
  static constexpr std::size_t run_requests = 128;
  static constexpr std::size_t max_misses = 32;  // polls of a run without a request; one more ends the trial
  static constexpr int percent = 97;             // a request may take at most this share of its time without polling
  // Polling is tried if a request takes a time in this range without it. Below it the server hardly sleeps; above it
  // requests are too rare.
  static constexpr std::chrono::microseconds min_pace{10}, max_pace{100};
  // Time without a request that counts as a pause of the clients.
  static constexpr std::chrono::milliseconds idle_gap{1};
  static constexpr std::size_t max_polling_runs = 64;  // then the pace without polling is measured again
  static constexpr std::size_t max_backoff_runs = 1024;

  // Call after serving requests; found_by_poll: they were found by a poll, otherwise the server was woken. Returns how
  // long to poll before sleeping: 0 or window.
  Clock::duration served(std::size_t requests, Clock::time_point now, bool found_by_poll);
  // Call after a poll without a request.
  void poll_missed();

 private:
  void begin_run(Clock::time_point now);
  void end_run(Clock::duration pace);
  void judge_sleeping(Clock::duration pace);
  void judge_polling(Clock::duration pace);
  void fail();

  std::size_t polling_runs_left_ = 0;  // 0: it does not poll
  std::size_t backoff_runs_left_ = 0;  // runs until the next trial
  std::size_t next_backoff_runs_ = 1;  // runs without polling after the next failure
  Clock::duration sleeping_pace_{};    // time per request in the last run without polling
  Clock::time_point last_;
  // The state of the current run.
  Clock::time_point began_;
  std::size_t requests_ = 0;
  std::size_t misses_ = 0;
};

}  // namespace ddprun::rendezvous
