#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "ddprun/worker/comm/transport/executor.h"
#include "ddprun/worker/comm/transport/serial_queue.h"

namespace ddprun::comm {

// Threads of the group's own, one a lane, take the collectives from one queue. Lanes begin when they are first needed.
//
// Ranks need not agree on who takes which: of all that are not done, the oldest was taken first at every rank, so that
// it is under way everywhere and gets done.
class LaneExecutor : public Executor {
 public:
  LaneExecutor(Transport& transport, GroupHealth& health, Seat seat);
  ~LaneExecutor() override { end(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void drop(const Error& cause) override;
  void end() override;

 private:
  struct Job {
    Collective collective;
    std::shared_ptr<Completion> work;
  };
  struct Begun {
    Job job;
    Ledger::Place place;
  };
  void work();
  std::optional<Begun> begin_next();

  const std::size_t lanes_;
  std::mutex mutex_;  // guards what follows, and the order of submissions
  std::uint64_t next_sequence_ = 0;
  std::vector<std::thread> threads_;

  std::mutex beginning_;                  // held by the lane that gets the next one
  std::atomic<std::size_t> pending_ = 0;  // queued, or in a lane
  SerialQueue<Job> queue_;
};

}  // namespace ddprun::comm
