#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ddprun::comm {

// Runs every task at once, each on a thread of its own; idle threads are reused. For tasks that block on each other's
// effects, where a fixed number of threads could deadlock. Tasks must not throw. The destructor waits for all tasks.
class CachedThreadPool {
 public:
  using Task = std::function<void()>;

  CachedThreadPool() = default;
  ~CachedThreadPool() { shutdown(); }
  CachedThreadPool(const CachedThreadPool&) = delete;
  CachedThreadPool& operator=(const CachedThreadPool&) = delete;

  // Throws std::system_error, without having kept the task, when no thread can be created for it.
  void run(Task task);
  // Waits for all tasks. REQUIRES: no run() follows.
  void shutdown();

 private:
  void work();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Task> tasks_;
  std::size_t idle_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddprun::comm
