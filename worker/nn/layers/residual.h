#pragma once

#include "worker/nn/layers/container.h"
#include "worker/nn/layers/convolution.h"
#include "worker/nn/layers/norm.h"

namespace ddprun::nn {

// relu(bn2(conv2(relu(bn1(conv1(x))))) + shortcut(x)), 3x3 convolutions: the block of ResNet-18 and -34 (He et al.
// 2016). (batch, in, height, width) -> (batch, out, height / stride, width / stride), rounded up. The shortcut is x
// itself, or where the shape changes a 1x1 convolution with batch normalization. Names are torchvision's: conv1, bn1,
// conv2, bn2, downsample.0, downsample.1.
class BasicBlock : public Module {
 public:
  BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& generator);

 private:
  Variable forward(const Variable& input) override;
  Part part() const override { return Part::block; }

  Conv2d& conv1_;
  BatchNorm& bn1_;
  Conv2d& conv2_;
  BatchNorm& bn2_;
  Sequential* downsample_ = nullptr;
};

// relu(bn3(conv3(relu(bn2(conv2(relu(bn1(conv1(x))))))) + shortcut(x)), convolutions 1x1 to width, 3x3 with the stride,
// 1x1 to 4 width: the block of ResNet-50 and deeper ones, as in torchvision (the stride in the middle).
class Bottleneck : public Module {
 public:
  static constexpr std::int64_t expansion = 4;

  Bottleneck(std::int64_t in, std::int64_t width, std::int64_t stride, Generator& generator);

 private:
  Variable forward(const Variable& input) override;
  Part part() const override { return Part::block; }

  Conv2d& conv1_;
  BatchNorm& bn1_;
  Conv2d& conv2_;
  BatchNorm& bn2_;
  Conv2d& conv3_;
  BatchNorm& bn3_;
  Sequential* downsample_ = nullptr;
};

}  // namespace ddprun::nn
