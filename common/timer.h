#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <utility>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

namespace ddprun {

// Runs one action at a time on an event loop. The handler of a boost::asio::steady_timer that has expired is queued,
// and still runs, without an error, after cancel(), after another time was set, and after its owner was destroyed. An
// action of a Timer does not begin after these.
//
// Ownership: owns the action until it begins, or is replaced or cancelled; the action may set the timer again, or
//   destroy it. The loop outlives the timer. Threads: those of the loop, one at a time. Errors: what an action throws
//   leaves the loop's run().
class Timer {
 public:
  using Clock = std::chrono::steady_clock;
  using Action = std::function<void()>;

  explicit Timer(boost::asio::io_context& loop) : timer_(loop) {}
  ~Timer() = default;
  Timer(const Timer&) = delete;
  Timer& operator=(const Timer&) = delete;

  // Each replaces the action that was set before.
  void run_at(Clock::time_point time, Action action) {
    timer_.expires_at(time);
    action_ = std::make_shared<Action>(std::move(action));
    timer_.async_wait([set = std::weak_ptr(action_)](const boost::system::error_code&) {
      if (const auto due = set.lock()) std::exchange(*due, nullptr)();
    });
  }
  void run_after(Clock::duration pause, Action action) { run_at(Clock::now() + pause, std::move(action)); }

  void cancel() {
    action_.reset();
    timer_.cancel();
  }

  // The time that was set last.
  Clock::time_point time() const { return timer_.expiry(); }

 private:
  boost::asio::steady_timer timer_;
  std::shared_ptr<Action> action_;  // null: none is set
};

}  // namespace ddprun
