#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/parameter_ref.h"
#include "worker/reducer/reducer.h"

namespace ddprun {

// The options of PyTorch's Join, with its names.
struct JoinOptions {
  // If true, gradients are divided by the number of all ranks, as long as any has inputs; otherwise by the number of
  // the ranks that still have inputs.
  bool divide_by_initial_world_size = true;
  // If true, all ranks throw Errc::usage as soon as one has no more inputs.
  bool throw_on_early_termination = false;
};

// How DdpPasses reaches the model of an engine. Parameters are numbered as those that the reducer got.
class DdpModel {
 public:
  virtual ~DdpModel() = default;

  // Returns whether a pass that begins now trains: the model is in training mode, and gradients are recorded.
  virtual bool trains() const = 0;
  // The ranks have these in common; some of the parameters may not be trained.
  virtual std::vector<ParameterRef> common_parameters() const = 0;
  virtual std::vector<ParameterRef> common_buffers() const = 0;

  // Calls the action when the backward pass that is running has computed all gradients.
  virtual void at_end_of_backward(std::function<void()> action) = 0;
  virtual void zero_grad() = 0;
  // Sets to zero what earlier passes left in the memory of gradients that have been cleared, or are undefined.
  virtual void settle_gradients() = 0;
  // Defines the gradient of each parameter that any rank has used (Reducer::used()) as the content of its memory.
  virtual void define_gradients() = 0;
  virtual void scale_gradients(double factor) = 0;
};

// The passes of DistributedDataParallel, for any engine: which are reduced, which begin with a broadcast of buffers,
// what a rank without inputs does in those of the others.
//
// The engine calls begin_forward() before the model runs, and gradient_ready() as soon as a gradient lies complete in
// the reducer's memory.
//
// Ownership: group and model must outlive this object. Threads: one at a time. All ranks run the same sequence of
// passes. Errors: those of the group and of Reducer; Errc::usage for a pass after a backward pass that has failed.
class DdpPasses {
 public:
  // trained: the parameters whose gradients are averaged. broadcast_buffers: see begin_forward().
  DdpPasses(ProcessGroup& group, DdpModel& model, const std::vector<ParameterRef>& trained,
            const ReducerOptions& options, bool broadcast_buffers);
  ~DdpPasses();  // waits for buffers in progress
  DdpPasses(const DdpPasses&) = delete;
  DdpPasses& operator=(const DdpPasses&) = delete;

  Reducer& reducer() { return reducer_; }

  // In the first training pass of each step, buffers are copied from rank 0; within join() in the last pass of each
  // step, and from a rank that has inputs.
  void begin_forward();
  void gradient_ready(std::size_t parameter);
  // Replaces a forward and a backward pass at a rank that has no samples for this one.
  void join_pass();
  // Replaces a backward pass, after begin_forward().
  void join_backward();
  // Uneven inputs: runs body, a loop over this rank's batches. A rank whose body has returned takes part in the passes
  // of the others until all have; then it gets the parameters and buffers of a rank that was among the last. This costs
  // a small allreduce for each training forward pass outside no_sync(). All ranks call it; if a body throws, this rank
  // leaves.
  void join(const std::function<void()>& body, const JoinOptions& options);
  // Copies rank 0's buffers to all ranks.
  void sync_buffers();
  // Returns the total time that passes have waited for other ranks.
  std::chrono::nanoseconds waited() const { return reducer_.waited() + waited_for_buffers_; }

  // Backward passes during its lifetime stay local; the first pass after it reduces the accumulated sums. Scopes nest.
  class NoSync {
   public:
    explicit NoSync(DdpPasses& passes) : passes_(passes) { ++passes_.no_sync_depth_; }
    ~NoSync() { --passes_.no_sync_depth_; }
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    DdpPasses& passes_;
  };

 private:
  void begin_pass();
  void end_backward();
  void copy_buffers();
  void await_buffers();
  std::vector<int> announce(bool has_inputs);

  ProcessGroup& group_;
  DdpModel& model_;
  const bool broadcast_buffers_;
  Reducer reducer_;
  int no_sync_depth_ = 0;
  bool in_pass_ = false;     // true if a reduced backward pass has begun and not ended
  bool begins_step_ = true;  // true if the next training pass follows one that was reduced
  WorkPtr buffers_;          // their broadcast, while it may be in progress
  std::chrono::nanoseconds waited_for_buffers_{};
  const JoinOptions* join_ = nullptr;  // set within join()
  std::vector<int> active_;            // within join(): the ranks that have inputs in this pass
};

}  // namespace ddprun
