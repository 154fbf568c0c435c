#pragma once

#include "ddprun/worker/autograd/ops/conv.h"
#include "ddprun/worker/nn/module.h"
#include "ddprun/worker/tensor/random.h"

namespace ddprun::nn {

// How the weight is drawn: uniform_by_fan_in(), PyTorch's default, or kaiming_normal() with fan-out, which torchvision
// takes for residual networks. The bias is uniform within 1 / sqrt(fan-in).
enum class ConvWeights { uniform_by_fan_in, kaiming_normal };

struct Conv2dOptions {
  std::int64_t stride = 1;
  std::int64_t padding = 0;
  bool bias = true;
  ConvWeights weights = ConvWeights::uniform_by_fan_in;
};

// (batch, in, height, width) -> (batch, out, oh, ow), sizes as conv2d() has them.
class Conv2d : public Module {
 public:
  Conv2d(std::int64_t in, std::int64_t out, std::int64_t kernel, Generator& generator,
         const Conv2dOptions& options = {});

 private:
  Variable forward(const Variable& input) override;

  ConvOptions options_;
  Variable weight_;  // (out, in, kernel, kernel)
  Variable bias_;    // (out)
};

}  // namespace ddprun::nn
