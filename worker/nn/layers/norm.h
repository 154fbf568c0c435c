#pragma once

#include <cstdint>
#include <utility>

#include "worker/autograd/ops/norm.h"
#include "worker/nn/module.h"

// Normalization, followed by a weight (1 at first) and a bias (0 at first) for each channel or feature.
namespace ddprun::nn {

struct NormOptions {
  double momentum = 0.1;
  double eps = 1e-5;
};

// (batch, channels) or (batch, channels, ...): PyTorch's BatchNorm1d and BatchNorm2d in one (Ioffe and Szegedy 2015).
class BatchNorm : public Module {
 public:
  explicit BatchNorm(std::int64_t channels, NormOptions options = {});

  // Training takes the statistics of all ranks' samples from now on; if empty, of this process's. See BatchNormOptions.
  void set_sum_over_ranks(SumOverRanks sum) { sum_over_ranks_ = std::move(sum); }

 private:
  Variable forward(const Variable& input) override;
  void count_batch();

  NormOptions options_;
  SumOverRanks sum_over_ranks_;
  Variable weight_, bias_;
  Variable running_mean_, running_var_, batches_;
  // The value of batches_, as long as it is this memory on a CUDA device and nobody else has changed it.
  std::int64_t known_count_ = 0;
  Tensor counted_;
  std::uint64_t counted_version_ = 0;
};

// (..., width), normalized over the last dimension (Ba, Kiros and Hinton 2016).
class LayerNorm : public Module {
 public:
  explicit LayerNorm(std::int64_t width, double eps = 1e-5, bool bias = true);

  // From now on results have autocast's 16-bit type: only products use them. For CUDA devices, where that saves a pass
  // over memory.
  void lower_results() { lowers_results_ = true; }

 private:
  Variable forward(const Variable& input) override;

  double eps_;
  bool lowers_results_ = false;
  Variable weight_;
  Variable bias_;  // undefined if there is none
};

// (..., width), normalized over the last dimension without subtracting the mean, without a bias (Zhang, Sennrich 2019).
class RmsNorm : public Module {
 public:
  explicit RmsNorm(std::int64_t width, double eps = 1e-6);

 private:
  Variable forward(const Variable& input) override;

  double eps_;
  Variable weight_;
};

// (batch, channels, ...), normalized over groups of each sample's channels (Wu and He 2018). groups divides channels.
class GroupNorm : public Module {
 public:
  GroupNorm(std::int64_t groups, std::int64_t channels, double eps = 1e-5);

 private:
  Variable forward(const Variable& input) override;

  std::int64_t groups_;
  double eps_;
  Variable weight_, bias_;
};

}  // namespace ddprun::nn
