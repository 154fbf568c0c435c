#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "ddprun/worker/comm/execution/executor.h"

namespace ddprun::comm {

// Threads of the group's own, one a lane, take the collectives from one queue. Lanes begin when they are first needed.
// A blocking call that finds a lane free and nothing queued is carried out by its caller: that saves the way to another
// thread and back.
//
// Ranks need not agree on who takes which: of all that are not done, the oldest was taken first at every rank, so that
// it is under way everywhere and gets done.
class QueueExecutor : public Executor {
 public:
  QueueExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info);
  ~QueueExecutor() override { end(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void drop(const Error& cause) override;
  void end() override;

 private:
  struct Job {
    Collective collective;
    std::shared_ptr<Completion> work;  // none: its caller carries it out
  };
  struct Begun {
    Job job;
    OperationLog::Slot slot;
  };
  bool lane_free() const { return under_way_ < concurrency_; }
  Begun begin(Job job);
  std::optional<Begun> begin_next();
  std::optional<Error> finish(Begun begun);
  WorkPtr execute_inline(Begun begun);
  void work();

  const std::size_t concurrency_;
  std::mutex mutex_;  // guards what follows, and the order in which collectives are submitted and begun
  std::condition_variable changed_;
  std::uint64_t next_sequence_ = 0;
  std::deque<Job> queue_;
  std::size_t under_way_ = 0;  // in lanes, and by callers
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddprun::comm
