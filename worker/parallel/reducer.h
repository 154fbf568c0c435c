#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <vector>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/parallel/bucketing.h"

namespace ddprun {

struct ReducerOptions {
  BucketLimits limits;
  // Off: a parameter that a backward pass did not reach is an error naming it. On: its gradient counts as it is, zero
  // unless something was accumulated before; used() tells which parameters some rank did use, at the cost of one more
  // small allreduce per pass.
  bool find_unused_parameters = false;
};

// Averages gradients over the ranks of a group while the backward pass is still running.
//
// The gradients live in the reducer's buckets: the engine accumulates into gradient_memory(). When it says that a
// parameter is ready, and all of that parameter's bucket is, and all buckets before it have started, the bucket's
// allreduce starts. So every rank starts the same allreduces in the same order, whatever order its gradients come in.
//
// One pass: mark_ready() once a parameter, then finalize(). Passes that are not to be reduced (accumulation) simply do
// neither: the next reduced one sends the sum. One thread at a time. Errors of the group come out of finalize(); after
// any error the reducer cannot be used again.
class Reducer {
 public:
  // group must outlive the reducer. Only the parameters' names, shapes and types are looked at.
  Reducer(ProcessGroup& group, const std::vector<ParameterRef>& parameters, const ReducerOptions& options = {});
  ~Reducer();  // waits for allreduces under way, whose buffers go
  Reducer(const Reducer&) = delete;
  Reducer& operator=(const Reducer&) = delete;

  // Zeroed at first, aligned to 64 bytes, allocated from the group. Keeps the memory alive, longer than this object if
  // need be.
  std::shared_ptr<void> gradient_memory(std::size_t parameter) const;
  const std::vector<Bucket>& buckets() const { return buckets_; }

  // A pass that is not reduced has reached a parameter: it counts as used in the next reduced one.
  void mark_used(std::size_t parameter) { used_.at(parameter) = 1; }
  // The gradient of a parameter is complete. Throws Errc::usage naming it when it was ready before in this pass.
  void mark_ready(std::size_t parameter);
  // The pass is over: waits until all gradients are averages. Throws Errc::usage naming the parameters that did not
  // become ready, unless find_unused_parameters.
  void finalize();

  // A whole pass at a rank without gradients for it: what the buckets hold is reduced as it is.
  void join_pass();

  // Whether any rank used a parameter in the last pass that was reduced, or in one since the pass before it.
  // REQUIRES: find_unused_parameters
  bool used(std::size_t parameter) const { return used_anywhere_.at(parameter) != 0; }

  // Time that finalize() has waited for other ranks and the network, in all.
  std::chrono::nanoseconds waited() const { return waited_; }

 private:
  struct Place {
    std::size_t bucket = 0;
    std::size_t slice = 0;
    bool ready = false;
  };
  void check_usable() const;
  void start_ready_buckets();
  void start_all_buckets();
  void end_pass();
  std::string unready_names() const;
  void wait_for_all();

  ProcessGroup& group_;
  const bool find_unused_;
  const std::vector<Bucket> buckets_;
  std::vector<std::string> names_;             // by parameter
  std::vector<Place> places_;                  // by parameter
  std::vector<std::uint8_t> used_;             // by parameter: 1 when this rank used it since the last reduced pass
  std::vector<std::uint8_t> used_anywhere_;    // by parameter: 1 when a rank used it
  std::vector<std::shared_ptr<void>> memory_;  // by bucket
  std::vector<std::size_t> missing_;           // by bucket: parameters not ready yet
  std::size_t next_ = 0;                       // the bucket to start next
  std::vector<WorkPtr> works_;                 // of the buckets started
  bool failed_ = false;
  std::chrono::nanoseconds waited_{};
};

}  // namespace ddprun
