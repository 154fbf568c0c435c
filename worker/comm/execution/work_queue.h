#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

#include "ddprun/worker/comm/execution/sync_wait_predictor.h"

namespace ddprun::comm {

// What is still to be done, in order: by its keeper, a thread that looks after it, or by callers who come for it first.
// While those are expected at once, the keeper is not woken up for each item, which costs more than many an item: it
// looks every nap, and returns for what has lain there for a whole one. Thread-safe.
template <class Item>
class WorkQueue {
 public:
  WorkQueue(SyncWaitPredictor& callers, std::chrono::microseconds nap) : callers_(callers), nap_(nap) {}

  void push(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    ++pushed_;
    if (!napping_) changed_.notify_one();
  }
  // No caller will come for the first one.
  void hand_over() {
    const std::lock_guard lock(mutex_);
    callers_.forget();
    changed_.notify_one();
  }
  // By the keeper: blocks until there is an item for it, some time at most. False once the queue is closed.
  bool await_item(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return closed_ || !items_.empty() || callers_.expected(); });
    if (callers_.expected()) nap(lock);
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
  // Until an item has lain there for a nap, or none has come in one; the next item wakes the keeper up again.
  void nap(std::unique_lock<std::mutex>& lock) {
    napping_ = true;
    std::uint64_t before = 0;
    do {
      before = pushed_;
      changed_.wait_for(lock, nap_, [this] { return closed_ || !callers_.expected(); });
    } while (!closed_ && callers_.expected() && pushed_ != before && number_of_first() >= before);
    callers_.forget();
    napping_ = false;
  }
  std::uint64_t number_of_first() const { return pushed_ - items_.size(); }

  SyncWaitPredictor& callers_;
  const std::chrono::microseconds nap_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  std::uint64_t pushed_ = 0;
  bool napping_ = false;
  bool closed_ = false;
};

}  // namespace ddprun::comm
