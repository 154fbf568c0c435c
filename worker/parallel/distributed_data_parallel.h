#pragma once

#include <chrono>
#include <memory>

#include "ddprun/worker/comm/process_group.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/reducer/reducer.h"

namespace ddprun {

struct DdpOptions {
  BucketLimits limits;
  // A backward pass need not reach every parameter. As in PyTorch, the gradient of a parameter that no rank used stays
  // undefined, so that an optimizer leaves the parameter alone.
  bool find_unused_parameters = false;
  // Whether each training forward begins with rank 0's buffers (running statistics) at every rank, as in PyTorch.
  bool broadcast_buffers = true;
};

// Data parallelism: every rank has the same model and its own share of each batch, and the gradients are averaged.
//
//   auto world = init_process_group({.env = WorkerEnv::from(Environment::capture())});
//   DistributedDataParallel ddp(model, world->group());
//   loss(ddp.forward(inputs), targets).backward();   // returns with averaged gradients
//   optimizer.step();
//
// Made, it checks that all ranks have the same model, and gives them rank 0's parameters and buffers. From then on
// every backward pass from the output of forward() averages the gradients, overlapped with its own computation, before
// it returns, and throws what went wrong (a lost peer, a parameter that was not reached). Under no_sync() gradients
// only accumulate.
//
// model and group must outlive this object; the model's gradients may outlive it. All ranks run the same sequence of
// passes. One thread at a time.
class DistributedDataParallel {
 public:
  DistributedDataParallel(nn::Module& model, ProcessGroup& group, const DdpOptions& options = {});
  ~DistributedDataParallel();
  DistributedDataParallel(const DistributedDataParallel&) = delete;
  DistributedDataParallel& operator=(const DistributedDataParallel&) = delete;

  Variable forward(const Variable& input);
  // In place of a forward and a backward pass at a rank that has no samples for this one: takes part in the pass's
  // communication and adds nothing to the gradients. The others' gradients are still divided by the number of ranks.
  void join_pass();
  nn::Module& module();

  // Backward passes while it lives stay local; the first one after it sends the accumulated sums. Scopes nest.
  class NoSync {
   public:
    explicit NoSync(DistributedDataParallel& ddp);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DistributedDataParallel& ddp_;
  };
  [[nodiscard]] NoSync no_sync() { return NoSync(*this); }

  // Gives all ranks rank 0's buffers: before an evaluation that is spread over the ranks, or a checkpoint.
  void sync_buffers();

  // Time that backward passes have waited for other ranks and the network, beyond their own computation.
  std::chrono::nanoseconds waited() const;

 private:
  struct State;
  std::unique_ptr<State> state_;  // at one address: hooks refer to it
};

}  // namespace ddprun
