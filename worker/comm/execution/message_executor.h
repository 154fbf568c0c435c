#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "worker/comm/execution/executor.h"
#include "worker/comm/operations/transfer_numbers.h"

namespace ddprun::comm {

// Runs every task at once, each on a thread of its own; idle threads are reused. It serves tasks that block on each
// other's effects, where a fixed number of threads could deadlock. Tasks must not throw. The destructor waits for all.
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

// Executes sends and receives: the caller's thread starts them, in the order of the calls, and a thread of the pool
// waits for each. A call for which no thread can be created breaks the group.
class MessageExecutor final : public Executor {
 public:
  MessageExecutor(Transport& transport, GroupHealth& health) : transport_(transport), health_(health) {}

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void cancel(const Error&) override {}  // all are started: they fail as the transport is interrupted
  void shutdown() override { pool_.shutdown(); }

 private:
  std::shared_ptr<Transfer> start(const Call& call);
  void finish(std::shared_ptr<Transfer> transfer, const Operation& operation, std::uint64_t number,
              std::chrono::milliseconds timeout, Completion& work);
  void fail_unwaited(std::shared_ptr<Transfer> transfer, const Operation& operation, const char* why, Completion& work);

  Transport& transport_;
  GroupHealth& health_;
  std::mutex mutex_;  // orders the starts, as messages of one tag match in the order of the calls; guards what follows
  TransferNumbers numbers_;
  CachedThreadPool pool_;
};

}  // namespace ddprun::comm
