#pragma once

#include <memory>

#include "worker/autograd/autocast.h"
#include "worker/autograd/function.h"
#include "worker/autograd/ops/conv.h"
#include "worker/autograd/placement_check.h"
#include "worker/tensor/onednn/threads.h"
#include "worker/trainer/config/train_config.h"

namespace ddprun::trainer {

// While it lives, the calling thread computes as the settings say: train.precision, train.winograd and train.shards.
class ComputeScope {
 public:
  explicit ComputeScope(const TrainConfig::Train& train)
      : precision_(compute_dtype(train)),
        winograd_(train.winograd),
        sums_(train.shards > 0 ? std::make_unique<onednn::DividedSums>() : nullptr) {}

 private:
  const autograd::AutocastScope precision_;  // weights are cast once in its life
  const WinogradScope winograd_;
  const std::unique_ptr<onednn::DividedSums> sums_;  // train.shards: the bits are those of any number of threads
};

// A ComputeScope for training, with train.detect_anomaly and train.check_placements.
class TrainingScope {
 public:
  explicit TrainingScope(const TrainConfig::Train& train)
      : compute_(train),
        anomaly_(train.detect_anomaly ? std::make_unique<autograd::AnomalyScope>() : nullptr),
        placements_(train.check_placements || autograd::always_checks_placements()
                        ? std::make_unique<autograd::PlacementCheckScope>()
                        : nullptr) {}

 private:
  const ComputeScope compute_;
  const std::unique_ptr<autograd::AnomalyScope> anomaly_;
  const std::unique_ptr<autograd::PlacementCheckScope> placements_;
};

}  // namespace ddprun::trainer
