#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace ddprun::comm {

// Runs every task at once, each in a thread of its own; idle threads are used again. For tasks that block on each
// other's effects, where a fixed number of threads could deadlock. Tasks must not throw. The destructor waits for all
// tasks.
class CachedThreadPool {
 public:
  using Task = std::function<void()>;

  CachedThreadPool() = default;
  ~CachedThreadPool();
  CachedThreadPool(const CachedThreadPool&) = delete;
  CachedThreadPool& operator=(const CachedThreadPool&) = delete;

  // Throws std::system_error, and keeps nothing of the task, where no thread can be made for it.
  void run(Task task);

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
