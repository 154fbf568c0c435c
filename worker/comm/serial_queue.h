#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>

namespace ddprun::comm {

// What one thread is still to do, in order. Thread-safe.
template <class Item>
class SerialQueue {
 public:
  void push(Item item) {
    const std::lock_guard lock(mutex_);
    items_.push_back(std::move(item));
    changed_.notify_one();
  }
  // Blocks until there is an item; none once the queue is closed, whatever it still holds.
  std::optional<Item> pop() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return closed_ || !items_.empty(); });
    if (closed_) return std::nullopt;
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
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Item> items_;
  bool closed_ = false;
};

}  // namespace ddprun::comm
