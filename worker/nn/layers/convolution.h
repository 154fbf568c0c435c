#pragma once

#include "worker/autograd/ops/conv.h"
#include "worker/nn/layers/weighted_layer.h"
#include "worker/tensor/random.h"

namespace ddprun::nn {

// The distribution of the weight: uniform_by_fan_in(), PyTorch's default, or kaiming_normal() with fan-out, which
// torchvision takes for residual networks. The bias is uniform within 1 / sqrt(fan-in).
enum class ConvWeights { uniform_by_fan_in, kaiming_normal };

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  ConvWeights weights = ConvWeights::uniform_by_fan_in;
};

// (batch, in, height, width) -> (batch, out, oh, ow), with the sizes of conv2d(). Shapes: weight (out, in, kernel,
// kernel), bias (out).
class Conv2d : public WeightedLayer {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
         const Conv2dOptions& options = {});
  Variable apply(const Variable& input, const Variable& weight, const Variable& bias) const override;
  const ConvOptions& options() const { return options_; }

 private:
  ConvOptions options_;
};

}  // namespace ddprun::nn
