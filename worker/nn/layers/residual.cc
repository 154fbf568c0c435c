#include "ddprun/worker/nn/layers/residual.h"

#include "ddprun/worker/autograd/ops/activation.h"
#include "ddprun/worker/autograd/ops/elementwise.h"

namespace ddprun::nn {
namespace {

std::unique_ptr<Conv2d> convolution(std::int64_t in, std::int64_t out, std::int64_t kernel, std::int64_t stride,
                                    Generator& generator) {
  return std::make_unique<Conv2d>(
      in, out, kernel, generator,
      Conv2dOptions{.stride = stride, .padding = kernel / 2, .bias = false, .weights = ConvWeights::kaiming_normal});
}

}  // namespace

BasicBlock::BasicBlock(std::int64_t in, std::int64_t out, std::int64_t stride, Generator& generator)
    : conv1_(register_module("conv1", convolution(in, out, 3, stride, generator))),
      bn1_(register_module("bn1", std::make_unique<BatchNorm>(out))),
      conv2_(register_module("conv2", convolution(out, out, 3, 1, generator))),
      bn2_(register_module("bn2", std::make_unique<BatchNorm>(out))) {
  if (in == out && stride == 1) return;
  downsample_ = &register_module("downsample", std::make_unique<Sequential>());
  downsample_->add(convolution(in, out, 1, stride, generator)).add(std::make_unique<BatchNorm>(out));
}

Variable BasicBlock::forward(const Variable& input) {
  const Variable inner = relu(bn1_(conv1_(input)));
  const Variable shortcut = downsample_ ? (*downsample_)(input) : input;
  return relu(add(bn2_(conv2_(inner)), shortcut));
}

}  // namespace ddprun::nn
