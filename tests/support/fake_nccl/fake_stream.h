#pragma once

#include <condition_variable>
#include <cuda_runtime_api.h>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

// The object behind a cudaStream_t: executes its tasks in order, on a thread of its own.
struct CUstream_st {
  using Task = std::function<void()>;

  CUstream_st() : thread([this] { work(); }) {}
  ~CUstream_st() {
    {
      const std::lock_guard lock(mutex);
      closed = true;
    }
    changed.notify_all();
    thread.join();
  }
  CUstream_st(const CUstream_st&) = delete;
  CUstream_st& operator=(const CUstream_st&) = delete;

  void run(Task task) {
    {
      const std::lock_guard lock(mutex);
      tasks.push_back(std::move(task));
    }
    changed.notify_all();
  }
  bool idle() {
    const std::lock_guard lock(mutex);
    return tasks.empty() && !busy;
  }

 private:
  // Executes all pending tasks before it ends.
  void work() {
    std::unique_lock lock(mutex);
    while (true) {
      changed.wait(lock, [this] { return closed || !tasks.empty(); });
      if (tasks.empty()) return;
      const auto task = std::move(tasks.front());
      tasks.pop_front();
      busy = true;
      lock.unlock();
      task();
      lock.lock();
      busy = false;
    }
  }

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Task> tasks;
  bool closed = false;
  bool busy = false;
  std::thread thread;  // last: uses all members above
};
