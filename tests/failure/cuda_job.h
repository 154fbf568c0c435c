#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/error.h"
#include "rendezvous/store/store_server_thread.h"
#include "worker/comm/process_group.h"
#include "tests/numerics/training_job.h"

namespace ddprun::failure {

// A job of two ranks, threads of the test that have an emulated CUDA device each. Each run makes its first steps anew,
// on new groups.
class CudaJob {
 public:
  static constexpr int ranks = 2;

  // These functions are called on a rank's thread.
  struct Hooks {
    using Hook = std::function<void(int rank, ProcessGroup& group)>;
    Hook before_step = [](int, ProcessGroup&) {};     // called before the first step
    Hook before_last = [](int, ProcessGroup&) {};     // called before the last one
    Hook after_step = [](int, ProcessGroup&) {};      // called after the last one, where none failed
    Hook before_leaving = [](int, ProcessGroup&) {};  // called in any case, while the group still exists
  };
  struct End {
    std::string failure;         // the error that ended the rank; empty: none did
    Errc code = Errc::internal;  // code of the failure
    std::string state;           // weights, the optimizer's state and averages on the device afterwards, as bytes
  };

  // text is that of a train.cfg. steps: those of each run.
  explicit CudaJob(const std::string& text, int steps = 1);

  // Returns the ends by rank.
  std::vector<End> run(const Hooks& hooks);
  // Returns the state before the first step, and that after the last one.
  const std::string& before() const { return states_.front(); }
  const std::string& after() const { return states_.back(); }
  // Returns the states between steps, those two included.
  const std::vector<std::string>& states() const { return states_; }

 private:
  std::vector<End> run(const Hooks& hooks, int steps);
  End run_rank(int rank, const std::string& prefix, const Hooks& hooks, int steps);
  std::unique_ptr<ProcessGroup> join(int rank, const std::string& prefix) const;

  const testing::TrainingJob job_;
  const std::unique_ptr<tasks::Task> task_;
  StoreServerThread store_;
  int runs_ = 0;
  std::vector<std::string> states_;
};

}  // namespace ddprun::failure
