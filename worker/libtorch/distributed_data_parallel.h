#pragma once

#include <functional>
#include <memory>
#include <string>
#include <torch/torch.h>
#include <utility>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/reducer/ddp_passes.h"

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

  // begin_forward() is called before each forward pass; see there also for join(), no_sync() and hooks.
  DdpPasses& passes();

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
    averaging_.passes().begin_forward();
    return module_->forward(std::forward<Arguments>(arguments)...);
  }
  template <class... Arguments>
  auto operator()(Arguments&&... arguments) {
    return forward(std::forward<Arguments>(arguments)...);
  }

  Holder& module() { return module_; }
  // Passes during the lifetime of the result stay local; the first one after it reduces the accumulated sums.
  [[nodiscard]] DdpPasses::NoSync no_sync() { return DdpPasses::NoSync(averaging_.passes()); }
  // Replaces the average by allreduce; the same hook at every rank, between two passes.
  void register_comm_hook(std::unique_ptr<CommHook> hook) { averaging_.passes().reducer().set_hook(std::move(hook)); }
  // Copies rank 0's buffers to all ranks: before an evaluation or a checkpoint.
  void sync_buffers() { averaging_.passes().sync_buffers(); }
  // Trains on uneven inputs: runs body, a loop over this rank's batches; see DdpPasses::join().
  void join(const std::function<void()>& body, const JoinOptions& options = {}) {
    averaging_.passes().join(body, options);
  }

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
