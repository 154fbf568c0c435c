#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "ddprun/worker/comm/execution/executor.h"
#include "ddprun/worker/comm/execution/polling_work.h"
#include "ddprun/worker/comm/execution/work_queue.h"

namespace ddprun::comm {

// Collectives are carried out one at a time by whoever holds the turn:
//   the caller of a blocking one, when nothing is queued before it;
//   for what was posted or queued: a thread that waits for it, a later caller, or the executor's own thread.
// Locks: the turn before mutex_; under mutex_ the turn is only tried.
class CallerRunsExecutor : public Executor, public ProgressToken::ProgressEngine {
 public:
  CallerRunsExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info);
  ~CallerRunsExecutor() override { end(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void drop(const Error& cause) override;
  void end() override;

 private:
  struct Job {
    Collective collective;
    std::shared_ptr<Completion> work;
    OperationLog::Slot slot = OperationLog::no_slot;  // of one that was posted
  };
  bool post(Job& job);
  void finish_ready();
  WorkPtr execute_inline(const Call& call, std::chrono::milliseconds timeout);
  bool progress(const Deadline& deadline) override;
  bool finish_oldest_posted(const Deadline& deadline);
  void finish_all_posted();
  std::optional<Error> execute_queued(Job& job);
  void work();

  std::mutex mutex_;               // guards what follows, and the order of submissions
  std::deque<Job> posted_;         // begun by the transport, and not finished; nothing is queued before them
  bool finishing_posted_ = false;  // the first of them, by the holder of the turn

  std::atomic<int> any_posted_ = 0;  // their number, for a look without the lock
  const std::shared_ptr<ProgressToken> turn_ = std::make_shared<ProgressToken>(*this);
  std::atomic<std::uint64_t> next_sequence_ = 0;  // taken under mutex_, or with the turn when nothing is queued
  std::atomic<int> queued_ = 0;                   // those that are carried out included; grows under mutex_ alone
  WorkQueue<Job> queue_;
  std::thread thread_;  // last: runs on all the above
};

}  // namespace ddprun::comm
