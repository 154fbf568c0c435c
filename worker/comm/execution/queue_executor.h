#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "worker/comm/execution/executor.h"

namespace ddprun::comm {

// Executes collectives on threads of the group, which take them from one queue: as many at once as the transport
// allows. A thread is started when it is first needed. The caller executes a blocking collective itself when nothing is
// queued and the limit allows it, which saves two thread switches.
//
// Ranks need not agree on which thread executes which collective: every rank starts the oldest unfinished one first, so
// that one is being executed at all ranks and finishes.
class QueueExecutor final : public Executor {
 public:
  QueueExecutor(Transport& transport, GroupHealth& health, RankInfo rank_info);
  ~QueueExecutor() override { shutdown(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void cancel(const Error& cause) override;
  void shutdown() override;

 private:
  struct Job {
    Collective collective;
    std::shared_ptr<Completion> work;  // null if the caller executes it
  };
  struct Started {
    Job job;
    OperationLog::Slot slot;
  };
  bool below_limit() const { return executing_ < concurrency_; }
  Started start(Job job);
  std::optional<Started> start_next();
  std::optional<Error> execute(Started started);
  WorkPtr execute_inline(Started started);
  void run_queue();

  GroupHealth& health_;
  CollectiveRunner runner_;
  const std::size_t concurrency_;
  std::mutex mutex_;  // guards what follows, and the order in which collectives are submitted and started
  std::condition_variable changed_;
  std::uint64_t next_sequence_ = 0;
  std::deque<Job> queue_;
  std::size_t executing_ = 0;  // on own threads and on callers' threads
  bool closed_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace ddprun::comm
