#pragma once

#include <vector>

#include "worker/comm/process_group.h"
#include "worker/nn/layers/norm.h"
#include "worker/nn/module.h"

namespace ddprun {

// PyTorch's SyncBatchNorm.convert_sync_batchnorm: while this object lives, every BatchNorm of the model takes its
// statistics over the samples of all ranks, which costs a small allreduce in each forward and each backward pass of a
// layer. All ranks run the same passes, each with at least one sample.
//
// Ownership: model and group outlive this object, which outlives backward passes of outputs made meanwhile.
// Threads: one at a time. Errors: forward and backward passes throw those of the group.
class SyncBatchNorm {
 public:
  SyncBatchNorm(nn::Module& model, ProcessGroup& group);
  ~SyncBatchNorm();
  SyncBatchNorm(const SyncBatchNorm&) = delete;
  SyncBatchNorm& operator=(const SyncBatchNorm&) = delete;

 private:
  std::vector<nn::BatchNorm*> layers_;
};

}  // namespace ddprun
