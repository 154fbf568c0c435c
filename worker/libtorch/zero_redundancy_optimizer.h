#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <torch/torch.h>
#include <vector>

#include "worker/comm/process_group.h"
#include "worker/libtorch/parameters.h"

namespace ddprun::torch {

// ZeRO-1 (Rajbhandari et al., 2020), like PyTorch's ZeroRedundancyOptimizer: each rank updates a part of the parameters
// and keeps the optimizer's state for only these; step() then sends every part to the other ranks. It suits any
// optimizer of libtorch that treats its parameters independently of each other.
//
//   ZeroRedundancyOptimizer<::torch::optim::Adam> optimizer(net->parameters(), group,
//   ::torch::optim::AdamOptions(1e-3));
//
// Ownership: shares the parameters; the group must outlive it. Threads: one at a time; all ranks call step() alike.
// Errors: those of the group.
template <class Optimizer>
class ZeroRedundancyOptimizer {
 public:
  template <class Options>
  ZeroRedundancyOptimizer(std::vector<at::Tensor> parameters, ProcessGroup& group, const Options& options)
      : parameters_(std::move(parameters)), owners_(balanced_owners(parameters_, group.size())), group_(group) {
    std::vector<at::Tensor> own;
    for (std::size_t p = 0; p < parameters_.size(); ++p)
      if (owners_[p] == group.rank()) own.push_back(parameters_[p]);
    if (!own.empty()) local_.emplace(std::move(own), options);  // there may be more ranks than parameters
  }

  void step() {
    if (local_) local_->step();
    share_parts(group_, parameters_, owners_);
  }
  void zero_grad() {
    for (auto& parameter : parameters_)
      if (parameter.grad().defined()) parameter.mutable_grad().zero_();
  }
  // Returns this rank's part; none where a rank has no parameter. A checkpoint has one for each rank.
  Optimizer* local() { return local_ ? &*local_ : nullptr; }

 private:
  std::vector<at::Tensor> parameters_;
  const std::vector<int> owners_;  // by parameter: the rank that updates it
  ProcessGroup& group_;
  std::optional<Optimizer> local_;
};

}  // namespace ddprun::torch
