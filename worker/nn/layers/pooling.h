#pragma once

#include "worker/autograd/ops/conv.h"
#include "worker/nn/module.h"

// (batch, channels, height, width) -> (batch, channels, oh, ow), with the sizes of max_pool2d() and the others.
namespace ddprun::nn {

class MaxPool2d : public Module {
 public:
  explicit MaxPool2d(PoolOptions options) : options_(options) {}

 private:
  Variable forward(const Variable& input) override;

  PoolOptions options_;
};

class AvgPool2d : public Module {
 public:
  explicit AvgPool2d(PoolOptions options) : options_(options) {}

 private:
  Variable forward(const Variable& input) override;

  PoolOptions options_;
};

// Pools to a given size; 1 x 1 is the mean over each channel ("global average pooling", Lin, Chen and Yan 2014).
class AdaptiveAvgPool2d : public Module {
 public:
  explicit AdaptiveAvgPool2d(std::int64_t height = 1, std::int64_t width = 1) : height_(height), width_(width) {}

 private:
  Variable forward(const Variable& input) override;

  std::int64_t height_, width_;
};

}  // namespace ddprun::nn
