#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ddprun::comm {

// Predicts whether the callers wait for their queued works at once, and so execute them themselves, from how they
// waited for the last ones. Thread-safe.
class SyncWaitPredictor {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::chrono::microseconds at_once{50};
  static constexpr int required = 8;  // prompt waits in succession

  // Notes that a caller waited for its work that long after it was queued.
  void note(Clock::duration after) {
    const int seen = in_succession_.load(std::memory_order_relaxed);
    if (after >= at_once) return forget();
    if (seen < required) in_succession_.store(seen + 1, std::memory_order_relaxed);
  }
  void forget() { in_succession_.store(0, std::memory_order_relaxed); }
  bool expected() const { return in_succession_.load(std::memory_order_relaxed) >= required; }

 private:
  std::atomic<int> in_succession_ = 0;
};

// A queue of work that is taken by a worker thread, or by callers before it. While callers are expected to take their
// items at once, the worker is not woken for each item, which would often cost more than the item: it polls, and takes
// what has been there for a whole interval. Thread-safe.
template <class Item>
class WorkQueue {
 public:
  WorkQueue(SyncWaitPredictor& callers, std::chrono::microseconds poll_interval)
      : callers_(callers), poll_interval_(poll_interval) {}

  void push(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    ++pushed_;
    if (!polling_) changed_.notify_one();
  }
  // Puts the item before all others.
  void push_front(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_front(std::move(item));
    ++pushed_;
    if (!polling_) changed_.notify_one();
  }
  // Called when no caller will take the first item: leaves it to the worker.
  void hand_over() {
    const std::lock_guard lock(mutex_);
    callers_.forget();
    changed_.notify_one();
  }
  // The worker waits here until there may be an item for it, at most that long. Returns false once the queue is closed.
  bool await_item(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return closed_ || !items_.empty() || callers_.expected(); });
    if (callers_.expected()) poll(lock);
    return !closed_;
  }
  std::optional<Item> try_pop() {
    const std::lock_guard lock(mutex_);
    if (closed_ || items_.empty()) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }
  std::deque<Item> take_all() {
    const std::lock_guard lock(mutex_);
    return std::exchange(items_, {});
  }
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    changed_.notify_all();
  }

 private:
  // Polls until an item has been there for an interval, or none was pushed in one; the next item then wakes the worker.
  void poll(std::unique_lock<std::mutex>& lock) {
    polling_ = true;
    std::uint64_t before = 0;
    do {
      before = pushed_;
      changed_.wait_for(lock, poll_interval_, [this] { return closed_ || !callers_.expected(); });
    } while (!closed_ && callers_.expected() && pushed_ != before && number_of_first() >= before);
    callers_.forget();
    polling_ = false;
  }
  std::uint64_t number_of_first() const { return pushed_ - items_.size(); }

  SyncWaitPredictor& callers_;
  const std::chrono::microseconds poll_interval_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::uint64_t pushed_ = 0;
  bool polling_ = false;
  bool closed_ = false;
};

}  // namespace ddprun::comm
