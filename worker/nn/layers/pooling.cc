#include "worker/nn/layers/pooling.h"

namespace ddprun::nn {

Variable MaxPool2d::forward(const Variable& input) {
  return max_pool2d(input, options_);
}

Variable AvgPool2d::forward(const Variable& input) {
  return avg_pool2d(input, options_);
}

Variable AdaptiveAvgPool2d::forward(const Variable& input) {
  return adaptive_avg_pool2d(input, height_, width_);
}

}  // namespace ddprun::nn
