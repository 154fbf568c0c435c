#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <utility>
#include <vector>

#include "call.h"
#include "membership.h"
#include "work.h"

namespace ddprun_torch {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

// A torch.distributed back end over a ddprun process group, for dense tensors on the CPU; all_reduce takes sparse ones.
// Here are the calls; what is off their path is in Python, in ddprun.group.
//
// Ownership: owns its membership in the group, and with it the group.
// Threads: as the group: every rank calls the same collectives in the same order. Coalescing on one thread at a time.
// Errors: see errors.h. After the first failure of communication every operation fails with it; form a new group.
class Backend : public c10d::Backend {
 public:
  // membership is of ddprun.group.membership. The caller holds the interpreter's lock.
  Backend(const pybind11::object& membership, const std::shared_ptr<InterpreterGate>& gate);
  ~Backend() override;

  const std::string getBackendName() const override { return "ddprun"; }
  c10::intrusive_ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  std::string transport() const { return ddprun_group_backend(membership_.group()); }
  std::uint64_t bytes_sent() const { return ddprun_group_bytes_sent(membership_.group()); }

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr all_gather_single(at::Tensor& output, at::Tensor& input, const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_coalesced(std::vector<Tensors>& outputs, Tensors& inputs,
                              const c10d::AllgatherOptions& options) override;
  WorkPtr all_gather_single_coalesced(Tensors& outputs, Tensors& inputs,
                                      const c10d::AllgatherOptions& options) override;
  WorkPtr gather(std::vector<Tensors>& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr gather_single(at::Tensor& output, at::Tensor& input, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, std::vector<Tensors>& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, std::vector<Tensors>& inputs,
                         const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single(at::Tensor& output, at::Tensor& input,
                                const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_single_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr all_to_all_single(at::Tensor& output, at::Tensor& input, std::vector<std::int64_t>& output_splits,
                            std::vector<std::int64_t>& input_splits, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int destination, int tag) override;
  WorkPtr recv(Tensors& tensors, int source, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;
  void monitoredBarrier(const c10d::BarrierOptions& options, bool wait_all_ranks) override;

  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  bool supportsSplitting() const override { return true; }
  c10::intrusive_ptr<c10d::Backend> split(const c10::intrusive_ptr<c10d::Store>& store, const std::vector<int>& ranks,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options) override;
  c10::intrusive_ptr<c10d::Backend> merge(const c10::intrusive_ptr<c10d::Store>& store,
                                          const c10::intrusive_ptr<c10d::Backend::Options>& options, const int& rank,
                                          const int& size) override;

  bool supportsReconfigure() const override { return true; }
  c10d::ReconfigureHandle get_reconfigure_handle() const override { return handle_for_reconfigure_; }
  WorkPtr reconfigure(const c10d::ReconfigureOptions& options) override;

  // Memory that collectives access without a copy.
  bool supportsTensorAlloc(c10::DeviceIndex index) override { return index < 0; }  // only for the CPU
  at::Tensor allocateTensor(long size, at::TensorOptions options) override;

  void setTimeout(std::chrono::milliseconds timeout) override { options_->timeout = timeout; }
  std::uint64_t getSequenceNumberForGroup() override { return sequence_; }
  void setSequenceNumberForGroup() override {}
  c10d::ErrorType getError() override;
  void abort() override;
  void shutdown() override;

 private:
  // An event of a profile: "ddprun:all_reduce" and the inputs. It is empty where no profiler records.
  struct Event {
    std::string title = {};
    std::optional<Tensors> inputs = {};
    const char* name() const { return title.empty() ? nullptr : title.c_str(); }
  };

  std::int64_t limit(std::chrono::milliseconds timeout) const {
    return (timeout.count() > 0 ? timeout : options_->timeout).count();
  }
  WorkPtr run(Call&& call);
  Event event_of(const char* title, at::TensorList inputs) const;
  Event event_of(const Call& call) const;
  WorkPtr wrap(c10d::OpType type, OperationPtr operation, const Event& event, Tensors results, Completer& completer);
  // The work of a call that consists of others. inputs are what a profile shows.
  WorkPtr whole_of(c10d::OpType type, std::vector<OperationPtr> parts, const char* title, at::TensorList inputs);
  WorkPtr allreduce_sparse(const at::Tensor& tensor, const c10d::AllreduceOptions& options);

  const c10::intrusive_ptr<Options> options_;
  const std::string prefix_;  // of events in profiles: the back end's name in the script
  const std::string handle_for_reconfigure_;
  Membership membership_;
  std::shared_ptr<Completers> completers_;
  std::uint64_t sequence_ = 0;
  std::optional<std::vector<OperationPtr>> coalesced_;
};

}  // namespace ddprun_torch
