#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/torch.h>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/reducer.h"

// DistributedDataParallel for programs of libtorch, over ddprun's process groups. In namespace ddprun::torch, so
// PyTorch's own names are ::torch::... within ddprun.
namespace ddprun::torch {

// PyTorch's options, with its names.
struct DdpOptions {
  BucketLimits limits;
  // True if a backward pass need not reach every parameter. The gradient of one that no rank used stays undefined.
  bool find_unused_parameters = false;
  // True to copy rank 0's buffers (running statistics) to all ranks at the first training pass of each step, as PyTorch
  // does: of several passes within no_sync() and the one after them the first; within join() the last one.
  bool broadcast_buffers = true;
  // True if every backward pass of a rank reaches the parameters that its first one reached.
  bool static_graph = false;
};

// Does what DistributedDataParallel does, for a module of any type: the caller says when a forward pass begins.
//
// Gradients lie in the reducer's buckets: parameter.grad() is a view of them, also after zero_grad(), whether that sets
// gradients to zero or to none.
//
// Ownership: shares the module; the group must outlive this object; gradients may outlive it.
// Threads: one at a time. All ranks run the same sequence of passes.
// Errors: ddprun::Error. The constructor throws Errc::mismatch when the ranks' modules differ, Errc::unsupported for
//   parameters that are not dense on the CPU. backward() throws those of the group (a lost peer) and Errc::usage,
//   naming the parameters that the pass did not reach. The object cannot be used afterwards.
class GradientAveraging {
 public:
  GradientAveraging(std::shared_ptr<::torch::nn::Module> module, ProcessGroup& group, const DdpOptions& options = {});
  ~GradientAveraging() = default;
  GradientAveraging(const GradientAveraging&) = delete;
  GradientAveraging& operator=(const GradientAveraging&) = delete;

  // Copies buffers; called before each forward pass.
  void prepare_forward();
  // Copies rank 0's buffers to all ranks: before an evaluation or a checkpoint.
  void sync_buffers();
  // Replaces the average by allreduce; the same hook at every rank, between two passes.
  void register_comm_hook(std::unique_ptr<CommHook> hook);

  // Backward passes during its lifetime stay local; the first pass after it reduces the accumulated sums. Scopes nest.
  class NoSync {
   public:
    explicit NoSync(GradientAveraging& averaging);
    ~NoSync();
    NoSync(const NoSync&) = delete;
    NoSync& operator=(const NoSync&) = delete;

   private:
    GradientAveraging& averaging_;
  };

  // Trains on uneven inputs, like PyTorch's Join: runs body, a loop over this rank's batches. A rank whose body has
  // returned takes part in the passes of the others until all have; then all get the parameters and buffers of a rank
  // that was among the last. Gradients are divided by the number of all ranks.
  void join(const std::function<void()>& body);

 private:
  struct State;
  std::shared_ptr<State> state_;  // the module's hooks refer to it, and outlive it
};

// Data parallelism: every rank holds a replica of the module and trains it on its own part of each batch; the gradients
// are averaged over the ranks while the backward pass continues.
//
//   auto world = ddprun::init_process_group({.env = ddprun::WorkerEnv::from(ddprun::Environment::capture())});
//   ddprun::torch::DistributedDataParallel ddp(net, world->group());
//   ::torch::nll_loss(ddp(images), labels).backward();   // returns with averaged gradients
//   optimizer.step();
//
// Holder: ::torch::nn::Sequential, a holder that TORCH_MODULE made, or a std::shared_ptr of a module. For the rest see
// GradientAveraging.
template <class Holder>
class DistributedDataParallel {
 public:
  DistributedDataParallel(Holder module, ProcessGroup& group, const DdpOptions& options = {})
      : module_(std::move(module)), averaging_(pointer(module_), group, options) {}

  template <class... Arguments>
  auto forward(Arguments&&... arguments) {
    averaging_.prepare_forward();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  Holder& module() { return module_; }
  [[nodiscard]] GradientAveraging::NoSync no_sync() { return GradientAveraging::NoSync(averaging_); }
  void register_comm_hook(std::unique_ptr<CommHook> hook) { averaging_.register_comm_hook(std::move(hook)); }
  void sync_buffers() { averaging_.sync_buffers(); }
  void join(const std::function<void()>& body) { averaging_.join(body); }

 private:
  template <class Module>
  static std::shared_ptr<::torch::nn::Module> pointer(const std::shared_ptr<Module>& module) {
    return module;
  }
  template <class Module>
  static std::shared_ptr<::torch::nn::Module> pointer(const ::torch::nn::ModuleHolder<Module>& module) {
    return module.ptr();
  }

  Holder module_;
  GradientAveraging averaging_;
};

}  // namespace ddprun::torch
