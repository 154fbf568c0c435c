#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "common/timer.h"
#include "rendezvous/node_report.h"
#include "rendezvous/progress/training_memory.h"

namespace ddprun {

// Reads the training records that this node's workers publish.
//
// Ownership: the loop outlives it. Threads: single-threaded on the loop, which calls the handlers. Errors: none; where
// the system gives no memory, a warning reports it and no record is known.
class TrainingWatch {
 public:
  TrainingWatch(boost::asio::io_context& loop, int workers);

  // The workers get the address in their environment (WorkerEnvSpec::training_memory). It is empty without memory.
  std::string address() const { return memory_ ? memory_->address() : ""; }
  // Forgets the former workers. REQUIRES: no worker runs.
  void clear();
  // Returns the record of a worker, if it is of the process that runs now.
  std::optional<TrainingRecord> record(int local_rank, std::int64_t pid) const;
  // Returns the records of these workers, by local rank.
  std::vector<std::pair<int, TrainingRecord>> records(const std::vector<WorkerReport>& workers) const;
  // Returns whether all of these workers have made a step in their present process group, and say that a process may
  // stand by for them. So none is started while they wait for a replacement, and need the processors.
  bool want_standby(const std::vector<WorkerReport>& workers) const;
  // Adds to each report the training that its worker publishes.
  std::vector<WorkerReport> with_training(std::vector<WorkerReport> workers) const;
  // Returns those whose training has changed since the last call.
  std::vector<WorkerReport> changed(std::vector<WorkerReport> workers);

  // Calls the handler at this interval, until the end.
  void every(std::chrono::milliseconds interval, std::function<void()> handler);
  // Calls the handler after pauses that double from some milliseconds to that interval, until it returns true.
  void soon(std::function<bool()> handler);

 private:
  void wait();
  void try_after(std::chrono::milliseconds pause);

  std::optional<TrainingMemory> memory_;
  std::vector<std::int64_t> reported_ms_;  // TrainingRecord::time_ms by local rank
  Timer timer_, soon_;
  std::chrono::milliseconds interval_{0};
  std::function<void()> handler_;
  std::function<bool()> soon_handler_;
};

}  // namespace ddprun
