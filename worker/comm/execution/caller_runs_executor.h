#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "worker/comm/execution/executor.h"
#include "worker/comm/execution/progress_lock.h"
#include "worker/comm/execution/started_poller.h"
#include "worker/comm/execution/work_queue.h"

namespace ddprun::comm {

// Executes collectives one at a time, on whichever thread holds the progress lock:
//   a blocking one on its caller's thread, when no other is pending;
//   a started or queued one on a thread that waits for it, on that of a later caller, or on the executor's own thread.
// Where test() waits for no rank, the thread that all such groups of the process share tests started ones, and the own
// thread begins with the first queued one.
// Lock order: the progress lock before mutex_; under mutex_ the progress lock is only tried.
class CallerRunsExecutor final : public Executor {
 public:
  // transport: one that has nonblocking().
  CallerRunsExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info);
  ~CallerRunsExecutor() override { shutdown(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void cancel(const Error& cause) override;
  void shutdown() override;

 private:
  struct ProgressToken;
  class PendingWork;
  using PendingPtr = std::shared_ptr<PendingWork>;

  WorkPtr execute_inline(const Call& call, std::chrono::milliseconds timeout);
  std::unique_lock<ProgressLock> lock_progress();
  bool try_start(const PendingPtr& work);
  void enqueue(const PendingPtr& work);
  void need_thread() noexcept;
  void poll() noexcept;
  void count_queued(PendingWork& work);
  void execute_if_met(const PendingPtr& work);
  bool order(const PendingWork& work, void* stream, float* cancelled);
  bool test_oldest(const Deadline& deadline);
  void test_all();
  void finish_all();
  bool progress(const Deadline& deadline);
  std::optional<Error> execute_queued(PendingWork& work);
  void finish_queued(PendingWork& work);
  void run_queue();

  GroupHealth& health_;
  CollectiveRunner runner_;
  NonblockingCollectives& collectives_;

  std::mutex mutex_;                // guards the members below, and the order of submissions
  std::deque<PendingPtr> started_;  // nothing is queued before them
  bool testing_oldest_ = false;     // the holder of the progress lock is in the oldest's test()
  bool cancelled_ = false;          // the transport is interrupted: it no longer uses the memory of started ones

  std::atomic<int> started_count_ = 0;  // size of started_, readable without mutex_
  const std::shared_ptr<ProgressToken> token_;
  std::atomic<std::uint64_t> next_sequence_ = 0;  // taken under mutex_, or under the progress lock when none is queued
  std::atomic<int> queued_count_ = 0;             // includes the one being executed; grows under mutex_ only
  WorkQueue<PendingPtr> queue_;
  const bool shares_poller_;
  std::atomic<bool> polled_ = false;  // the shared thread has the progress lock, or is about to
  std::thread thread_;                // this executor's own; both threads are last, as they use all members above
  std::optional<StartedPoller::Registration> polling_;
};

}  // namespace ddprun::comm
