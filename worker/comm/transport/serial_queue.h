#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>

namespace ddprun::comm {

// What is still to be done, in order, by one thread or several. Thread-safe.
template <class Item>
class SerialQueue {
 public:
  void push(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  // Blocks until there is an item, some time at most. False once the queue is closed.
  bool await_item(std::chrono::milliseconds at_most) {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, at_most, [this] { return closed_ || !items_.empty(); });
    return !closed_;
  }
  std::optional<Item> try_pop() {
    const std::lock_guard lock(mutex_);
    return take_first();
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
  std::optional<Item> take_first() {
    if (closed_ || items_.empty()) return std::nullopt;
    Item item = std::move(items_.front());
    items_.pop_front();
    return item;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool closed_ = false;
};

}  // namespace ddprun::comm
