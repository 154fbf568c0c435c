#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "ddprun/worker/comm/transport/executor.h"
#include "ddprun/worker/comm/transport/helped_work.h"
#include "ddprun/worker/comm/transport/serial_queue.h"

namespace ddprun::comm {

// Collectives are carried out one at a time by whoever holds the turn:
//   the caller of a blocking one, when nothing is queued before it;
//   for what was posted or queued: a thread that waits for it, a later caller, or the executor's own thread.
// Locks: the turn before mutex_; under mutex_ the turn is only tried.
class TurnExecutor : public Executor, public Turn::Carrier {
 public:
  TurnExecutor(Transport& transport, GroupHealth& health, Seat seat);
  ~TurnExecutor() override { end(); }

  WorkPtr submit(const Call& call, std::chrono::milliseconds timeout) override;
  void drop(const Error& cause) override;
  void end() override;

 private:
  struct Job {
    Collective collective;
    std::shared_ptr<Completion> work;
    Ledger::Place place = Ledger::nowhere;  // of one that was posted
  };
  bool post(Job& job);
  void finish_ready();
  WorkPtr carry_out_here(const Call& call, std::chrono::milliseconds timeout);
  bool go_on(const Deadline& deadline) override;
  bool finish_oldest_posted(const Deadline& deadline);
  void finish_all_posted();
  std::optional<Error> carry_out_queued(Job& job);
  void work();

  std::mutex mutex_;               // guards what follows, and the order of submissions
  std::deque<Job> posted_;         // begun by the transport, and not finished; nothing is queued before them
  bool finishing_posted_ = false;  // the first of them, by the holder of the turn

  std::atomic<int> any_posted_ = 0;  // their number, for a look without the lock
  const std::shared_ptr<Turn> turn_ = std::make_shared<Turn>(*this);
  std::atomic<std::uint64_t> next_sequence_ = 0;  // taken under mutex_, or with the turn when nothing is queued
  std::atomic<int> queued_ = 0;                   // those that are carried out included; grows under mutex_ alone
  SerialQueue<Job> queue_;
  std::thread thread_;  // last: runs on all the above
};

}  // namespace ddprun::comm
