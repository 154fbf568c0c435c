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

// A job of two ranks, threads of the test that have an emulated CUDA device each. Each run makes its first step anew,
// on new groups.
class CudaJob {
 public:
  static constexpr int ranks = 2;

  // These functions are called on a rank's thread.
  struct Hooks {
    using Hook = std::function<void(int rank, ProcessGroup& group)>;
    Hook before_step = [](int, ProcessGroup&) {};
    Hook after_step = [](int, ProcessGroup&) {};      // called where it did not fail
    Hook before_leaving = [](int, ProcessGroup&) {};  // called in any case, while the group still exists
  };
  struct End {
    std::string failure;         // the error that ended the rank; empty: none did
    Errc code = Errc::internal;  // code of the failure
    std::string state;           // weights and the optimizer's state afterwards, as bytes
  };

  // text is that of a train.cfg.
  explicit CudaJob(const std::string& text);

  // Returns the ends by rank.
  std::vector<End> run(const Hooks& hooks);
  // Returns the state before the step.
  const std::string& before() const { return before_; }
  const std::string& after() const { return after_; }

 private:
  End run_rank(int rank, const std::string& prefix, const Hooks& hooks);
  std::unique_ptr<ProcessGroup> join(int rank, const std::string& prefix) const;

  const testing::TrainingJob job_;
  const std::unique_ptr<tasks::Task> task_;
  StoreServerThread store_;
  int runs_ = 0;
  std::string before_, after_;
};

}  // namespace ddprun::failure
