#pragma once

#include "worker/nn/module.h"
#include "worker/parallel/forms/data_parallelism.h"

namespace ddprun {

// Data parallelism of a group of one rank: gradients are those of the backward pass, on whatever devices the parameters
// are. For a model on several CUDA devices, since a group exchanges memory of one.
//
// Ownership: model and group outlive this object. Threads: one at a time.
// Errors: Errc::usage for a group of several ranks.
class SoleRank final : public DataParallelism {
 public:
  SoleRank(nn::Module& model, ProcessGroup& group);

  Variable forward(const Variable& input) override { return model_(input); }
  void join_pass() override {}
  ProcessGroup& shard_group() const override { return group_; }

  void zero_grad() override { model_.zero_grad(); }
  void parameters_updated() override {}
  void sync_buffers() override {}
  void visit_parameters(const Visitor& visit) override;

  std::chrono::nanoseconds waited() const override { return {}; }
  std::chrono::nanoseconds starting() const override { return {}; }
  void record_transfers(std::vector<Transfer>*) override {}

 private:
  nn::Module& model_;
  ProcessGroup& group_;
};

}  // namespace ddprun
